"""The project's own shape: pins, dependencies between packages, what may import torch."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
import yaml
from commands import Done, said
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PACKAGES = ("harness", "baselines", "generalist")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINNED = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
PYTHONS = ["3.11", "3.12", "3.13"]
MAKEFILE = ROOT / "Makefile"


def pins(lines: list[str]) -> dict[str, str]:
    """Name -> version."""
    found = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line[0] != "#"]
    return {canonicalize_name(pin[1]): pin[2] for pin in found}  # None, if not pinned exactly


LOCK = pins((ROOT / "constraints.txt").read_text().splitlines())
CUDA = pins((ROOT / "constraints-cuda.txt").read_text().splitlines())


def test_conda_and_pip_pin_the_same():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert sorted(pip) == sorted(PINNED)
    assert f"python={PYTHONS[0]}" in conda


def test_the_lock_holds_every_pin():
    """After a change of pins: `make lock`. What only `make bench` installs, it installs alone."""
    locked = [pin for extra in ("test", "slurm", "export", "docs") for pin in EXTRAS[extra]]
    wanted = pins([*PINNED, *locked, *PROJECT["build-system"]["requires"]])
    assert wanted.items() <= LOCK.items()
    assert pins(EXTRAS["bench"])
    assert not set(CUDA) & set(LOCK)


def needed(requirements: list[str], extra: str = "") -> Iterator[Requirement]:
    """Those that count here: on this Python and system, with the extra that was asked for."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def test_what_is_installed_is_what_is_locked():
    """All that the pins need in turn. Another build of torch needs other CUDA packages than PyPI's."""
    other_build = Version(version("torch")).local not in (None, "cu130")
    waiting = [*needed([*PINNED, *EXTRAS["test"]])]
    seen, wrong = set(), []
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen or (other_build and re.match("cuda-|nvidia-|triton", name)):
            continue
        seen.add(str(requirement))
        installed = distribution(name)
        if Version(installed.version).public != {**LOCK, **CUDA}.get(name):
            wrong.append(f"{name} {installed.version}")
        for extra in ["", *requirement.extras]:
            waiting += needed(installed.requires or [], extra)
    assert wrong == []
    assert len(seen) > 100


def test_the_same_pythons_everywhere():
    below, above = PYTHONS[0], f"3.{int(PYTHONS[-1][2:]) + 1}"
    assert PROJECT["project"]["requires-python"] == f">={below},<{above}"
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert ci["jobs"]["test"]["strategy"]["matrix"]["python"] == PYTHONS
    assert f"for python in {' '.join(f'python{one}' for one in PYTHONS)};" in MAKEFILE.read_text()
    assert f"Python {below} to {PYTHONS[-1]}, git and make" in (ROOT / "README.md").read_text()


def make(*words: str, folder: Path) -> Done:
    """`make .venv/ready` as it would be in a fresh clone."""
    for path in (MAKEFILE, ROOT / "pyproject.toml", *ROOT.glob("constraints*.txt")):
        shutil.copy2(path, folder)
    ours = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "TORCH")
    return subprocess.run(
        ["make", ".venv/ready", *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in ours},
        capture_output=True,
        text=True,
    )


def test_another_build_of_torch_is_installed_and_kept(tmp_path):
    default = said(make("-n", folder=tmp_path))
    assert '-c constraints.txt -c constraints-cuda.txt  -e ".[test]"' in default
    other = said(make("-n", "TORCH=cu126", folder=tmp_path))
    assert "--extra-index-url https://download.pytorch.org/whl/cu126" in other
    assert f" torch=={LOCK['torch']}+cu126 torchvision=={LOCK['torchvision']}+cu126 " in other
    assert "constraints-cuda" not in other
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "ready").write_text("cu126\n")
    assert "up to date" in said(make("-n", folder=tmp_path))
    assert "up to date" in said(make("-n", "TORCH=cu126", folder=tmp_path))
    assert "+cpu" in said(make("-n", "TORCH=cpu", folder=tmp_path))
    os.utime(tmp_path / ".venv" / "ready", (0, 0))  # as if a pin had changed since
    assert "+cu126" in said(make("-n", folder=tmp_path))


@pytest.mark.parametrize(("found", "accepted"), [((3, 10), False), ((3, 13), True), ((3, 14), False)])
def test_another_python_is_refused_with_one_sentence(found, accepted, tmp_path):
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
[ "$1" = --version ] && echo "Python {found[0]}.{found[1]}.0" && exit
[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.version_info = {found}; $2"
exit 3
"""
    )
    python.chmod(0o755)
    done = make(f"PYTHON={python}", folder=tmp_path)
    message = f"expected Python 3.11 to 3.13, found Python {found[0]}.{found[1]}.0; run make PYTHON="
    assert (message in done.stdout) == (not accepted)
    assert len(done.stdout.splitlines()) == 1  # if accepted, the command that failed
    assert not (tmp_path / ".venv").exists()


def test_the_image_is_made_of_files_that_exist():
    """`make lint` checks its style. make must find in the image whatever it looks at here."""
    words = re.findall(r"^COPY (.+) \./$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = set(words[0].split())
    assert all((ROOT / name).is_file() for name in copied)
    (needs,) = re.findall(r"^\.venv/ready: (.+)$", MAKEFILE.read_text(), re.MULTILINE)
    assert {"Makefile", PROJECT["project"]["readme"], *needs.split()} == copied


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_point_one_way(package):
    forbidden = set(PACKAGES[PACKAGES.index(package) + 1 :])
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.split(".")[0] for name in names} & forbidden, file


TORCH_FREE = (
    "cli",
    "grid.plan",
    "jobs.plan",
    "jobs.resources",
    "jobs.start",
    "jobs.train",
    "papers.audit",
    "papers.claims",
    "reports.tables",
    "reports.page.build",
    "reports.robustbench",
)


def test_planning_and_reporting_never_import_torch():
    """Nor does a training before it knows what to do."""
    code = (
        "import importlib, sys; from harness.grid.plan import Plan; Plan.read('paper').evaluations\n"
        f"for name in {TORCH_FREE}:\n"
        "    importlib.import_module(f'harness.{name}')\n"
        "    assert 'torch' not in sys.modules, name"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_workflow_reads_needs_neither_pandas_nor_scipy():
    """Parsing the Snakefile asks which records the claims and the entries of RobustBench need."""
    code = (
        "import sys; from harness.grid.plan import Plan; from harness.papers import claims; "
        "from harness.reports.robustbench import read; import harness.jobs.follow; "
        "plan = Plan.read('ci'); claims.runs(plan, claims.read(plan)); read(plan); "
        "sys.exit(bool({'pandas', 'scipy', 'torch'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_harness_names_no_method():
    slugs = {"trades", "generalist", "halfhalf", "madry"}
    for file in (ROOT / "harness").rglob("*.py"):
        tree = ast.parse(file.read_text())
        names = {node.id.lower() for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & slugs, file
