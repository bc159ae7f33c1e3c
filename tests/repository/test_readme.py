"""The README's example runs, its numbers are those of the reports, and documents name what exists."""

import csv
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from test_guides import STEP

from harness.core.commands import COMMANDS

README = ROOT / "README.md"
DOCUMENTS = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
# Folders of the repository; tools make others, such as .snakemake.
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
FOLDERS = {*FOLDERS, ".ci"} - {"data", "results"}
# Made by builds, so not in a clone.
BUILT = ("reports/ci/", "reports/smoke/", "reports/paper/")
COLUMNS = ("NAT", "PGD20", "AA")  # of the README's table, each ours and published


def identifier(document: Path) -> str:
    return str(document.relative_to(ROOT))


def quoted(text: str) -> list[str]:
    """What stands in backticks outside of code blocks, on one line."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose)]


def written(text: str) -> set[str | None]:
    """The files that a guide's reader writes."""
    return {name for step in STEP.finditer(text) for name in step.group("saved", "file")}


def named_paths(text: str) -> list[str]:
    """Words in backticks that begin with one of our folders, or name a file at the top."""
    words = [word.rstrip(".,;:") for code in quoted(text) for word in code.split()]
    return [
        word
        for word in words
        if ("/" in word and word.split("/")[0] in FOLDERS) or re.fullmatch(r"[A-Z]+\.md", word)
    ]


def exists(path: str) -> bool:
    """A name may hold `*`, or `<scale>` where any will do, or `{a,b}` in a pattern of files."""
    pattern = re.sub(r"<[^>]*>|\{[^}]*\}", "*", path)
    return any(ROOT.glob(pattern.rstrip("/"))) if "*" in pattern else (ROOT / path).exists()


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_every_path_that_a_document_names_exists(document):
    text = document.read_text()
    paths = [path for path in named_paths(text) if not path.startswith(BUILT)]
    assert [path for path in paths if not exists(path) and path not in written(text)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_every_link_leads_somewhere(document):
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    here = [link.partition("#")[0] for link in links if not link.startswith(("http", "#"))]
    assert [link for link in here if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_every_command_that_a_document_names_is_one(document):
    text = " ".join(document.read_text().split())
    assert re.findall(r"-m harness\.[\w.]+", text) == []
    assert "python -m harness" not in text or document.name == "CHANGELOG.md"  # documents know one form
    listed = r"(?:^|`)generalist-bench\s+([a-z]+)"
    commands = re.findall(listed, document.read_text(), re.MULTILINE)
    assert [name for name in commands if name not in COMMANDS] == []
    modules = re.findall(r"python -m (benchmarks|drills) ([a-z_]+)", text)
    assert {package for package, _ in modules} <= FOLDERS
    scripts = set(re.findall(r"python ([\w/]+\.py)", text)) - written(document.read_text())
    assert [script for script in scripts if not (ROOT / script).exists()] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = re.findall(r"`make ([a-z-]+)", text)
    assert [target for target in made if target not in targets] == []


def test_the_names_in_backticks_are_found():
    text = "`harness/cli.py`, `python\nbenchmarks/lite_budget.py 180` and\n```\nharness/none.py\n```\n"
    assert named_paths(text) == ["harness/cli.py", "benchmarks/lite_budget.py"]
    assert exists("harness/*/plan.py")
    assert exists("reports/<scale>/claims.md")
    assert not exists("harness/none.py")


def test_the_numbers_of_the_readme_are_those_of_the_report():
    """Where a lite table was made again, write its numbers and its commit into the README."""
    with (ROOT / "reports" / "lite" / "tables" / "cvpr23_table1a.csv").open() as file:
        cells = list(csv.DictReader(file))
    known = {(cell["label"], cell["column"]): cell for cell in cells}
    table = re.findall(r"^\| ([A-Z].*?) ((?:\| [\d.]+ ){6})\|$", README.read_text(), re.MULTILINE)
    assert len(table) >= 5
    for label, row in table:
        numbers = row.replace("|", " ").split()
        for column, ours, published in zip(COLUMNS, numbers[::2], numbers[1::2], strict=True):
            cell = known[label, column]
            assert ours == f"{float(cell['ours']):.1f}", (label, column)
            assert published == f"{float(cell['published']):.2f}", (label, column)
    assert {cell["n"] for cell in cells} == {"1000"}
    assert max(float(cell["high"]) - float(cell["low"]) for cell in cells) / 2 <= 3.1


def test_the_readme_fits_on_a_few_screens():
    assert len(README.read_text().splitlines()) < 120


def test_the_example_of_the_readme_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    said = printed(code.replace("examples=100", "examples=20"), tmp_path)
    assert re.search(r"^ +AA linf 16/255 +[\d.]+ +[\d.]+ +[\d.]+ +20 ", said, re.MULTILINE)
    assert (tmp_path / "my-report" / "flags.csv").exists()


def printed(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_of_the_parts_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "usage.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "pgd20" in block]
    lines = printed(code, tmp_path).splitlines()
    accuracy = {name: float(value) for name, value in map(str.split, lines)}
    assert accuracy["natural"] > 0.9  # it has learnt digits
    assert accuracy["PGD20"] < 0.2  # without an adversary, so it has no robustness


def test_one_version_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    releases = re.findall(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == (version, str(citation["date-released"]))
    assert citation["version"] == version
    assert [date for _, date in releases] == sorted((date for _, date in releases), reverse=True)


def test_hooks_run_the_pinned_tools():
    """From the environment, so that a commit and `make lint` agree and nothing is downloaded."""
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f'"{tool}==' in (ROOT / "pyproject.toml").read_text()
