"""Every guide, done to the letter in a fresh copy of the repository: its listings, then its commands.

The sentence before a listing names its file last. A `diff` shows lines that are new (+) among lines
that are there; YAML for a file that is there has entries for the ends of its sections. "Save it as" is
for the listing without a name.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

from harness.evaluation.records import read_evaluation
from harness.grid.plan import Plan
from harness.jobs import bill, meter
from harness.papers.fidelity import fidelity

FOLDERS = ("baselines", "config", "docs", "generalist", "harness", "profiles", "tests", "workflow")
FILES = ("Snakefile", "environment.yml", "pyproject.toml")
OUTSIDE, INSIDE = "Outside this repository", "In this repository"
STEP = re.compile(
    r"Save it as `(?P<saved>[^`]+)`"
    r"|(?:`(?P<file>[\w./]+\.\w+)`(?:(?!\n\n)[^`])*:\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)
SETTINGS = ("PYTHONPATH", "GENERALIST_DATA", "GENERALIST_CACHE")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    for name in (*FOLDERS, "reports/published"):
        shutil.copytree(ROOT / name, folder / name)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def follow(guide: str, folder: Path, way: str | None = None) -> None:
    """Do what a guide says, all of it or one of its ways."""
    text = (ROOT / "docs" / guide).read_text()
    if way:
        introduction, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
        (own,) = [section for section in sections if section.startswith(f"{way}\n")]
        text = introduction + own
    nameless = ""
    for step in STEP.finditer(text):
        saved, file, kind, listing = step.group("saved", "file", "kind", "text")
        if kind == "sh":
            run(listing, folder)
        elif kind == "diff":
            edit(folder / file, listing)
        elif kind == "yaml" and file and (folder / file).exists():
            extend(folder / file, listing)
        elif file or saved:
            create(folder / (file or saved), listing or nameless)
        else:
            assert kind == "python", f"which file is this? {listing}"
            nameless = listing


def create(file: Path, listing: str) -> None:
    assert not file.exists()
    file.parent.mkdir(exist_ok=True)
    file.write_text(listing)


def edit(file: Path, listing: str) -> None:
    text = file.read_text()
    for part in listing.split("...\n"):
        lines = part.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert text.count(old) == 1, f"{file} has no such place: {old}"
        text = text.replace(old, new)
    file.write_text(text)


def extend(file: Path, listing: str) -> None:
    """What stands before the next section but is not indented belongs to that one."""
    lines = file.read_text().splitlines()
    for section in re.findall(r"^\w+:\n(?: .*\n)+", listing, re.MULTILINE):
        head, *entries = section.splitlines()
        begin = lines.index(head) + 1
        others = (number for number in range(begin, len(lines)) if lines[number][:1].isalpha())
        end = next(others, len(lines))
        while not lines[end - 1].startswith(" "):
            end -= 1
        lines[end:end] = entries
    file.write_text("\n".join(lines) + "\n")


def run(commands: str, folder: Path) -> None:
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=folder,
        env={**{name: os.environ[name] for name in os.environ.keys() - set(SETTINGS)}, **own},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def numbers(file: Path) -> dict[tuple[str, str], float]:
    """Method and column -> our number."""
    table = pd.read_csv(file)
    assert table["ours"].between(0, 100).all()
    return dict(zip(zip(table["method"], table["column"], strict=True), table["ours"], strict=True))


def test_a_method_outside(clone, monkeypatch):
    follow("adding-a-method.md", clone, OUTSIDE)
    found = numbers(clone / "reports" / "ci" / "tables" / "smooth_table.csv")
    assert found.keys() >= {("smooth_at", "NAT"), ("smooth_at", "PGD20"), ("at", "PGD20")}
    assert "AT with label smoothing" in (clone / "reports/ci/tables/smooth_table.md").read_text()
    monkeypatch.syspath_prepend(clone.parent / "mine")
    plan = Plan.read("ci", clone.parent / "mine" / "grid.yaml")
    (smooth,) = [run for run in plan.runs.values() if run.method.slug == "smooth_at"]
    assert smooth.method.objective.smoothing == 0.2
    assert "smooth_at" in bill.text(plan, meter.rates(plan), None)
    assert "| `smooth_at` | SmoothAT:" in fidelity(plan.grid)


def test_a_method_inside(clone):
    follow("adding-a-method.md", clone, INSIDE)
    found = numbers(clone / "reports" / "ci" / "tables" / "smooth_table.csv")
    assert found.keys() >= {("smooth_at", "NAT"), ("smooth_at", "PGD20"), ("at", "PGD20")}


def test_an_attack_outside(clone, monkeypatch):
    follow("adding-an-attack.md", clone, OUTSIDE)
    assert ("nt", "Noise") in numbers(clone / "reports" / "ci" / "tables" / "noise_table.csv")
    monkeypatch.syspath_prepend(clone.parent / "mine")
    plan = Plan.read("ci", clone.parent / "mine" / "grid.yaml")
    (run,) = plan.artefacts["noise_table"].runs
    probe = plan.columns.probe("Noise", "digits")
    assert probe.attack.draws == 20
    records = read_evaluation(clone / "results", plan.evaluations[run])[0]
    assert 0 < records[probe.id].forward_examples <= bill.of_evaluation((probe,)).all_forward


def test_an_attack_inside(clone):
    follow("adding-an-attack.md", clone, INSIDE)
    run("python -c 'from harness.attacks import ATTACKS; ATTACKS[\"noise\"].draws'", clone)


def test_a_data_set(clone):
    follow("adding-a-data-set.md", clone)
    table = clone / "reports" / "ci" / "tables" / "shapes_table"
    assert {("nt", "PGD20"), ("at", "PGD20")} <= numbers(table.with_suffix(".csv")).keys()
    assert "shapes with resnet18, measured with tiny on shapes" in table.with_suffix(".md").read_text()


def test_a_table(clone):
    follow("adding-a-table.md", clone)
    found = numbers(clone / "reports" / "ci" / "tables" / "steps_table.csv")
    assert {("nt", "PGD5"), ("at", "PGD5"), ("at", "PGD20")} <= found.keys()


def test_a_figure(clone):
    follow("adding-a-figure.md", clone)
    figure = clone / "reports" / "ci" / "figures" / "lambda_figure"
    found = numbers(figure.with_suffix(".csv"))
    assert {("trades~1", "PGD20"), ("trades~6", "PGD20")} <= found.keys()
    assert figure.with_suffix(".png").exists()
