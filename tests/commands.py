"""Commands as a user would give them, and what became of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.core.config import ROOT

_PLACES = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(_PLACES), "OMP_NUM_THREADS": "1"}
Done = subprocess.CompletedProcess


def command(*words: str, cwd: Path, check: bool = False, **settings: Any) -> Done:
    """A command of the project's, from another folder."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=check,
        timeout=600,
        **settings,
    )


def snakemake_words(*words: str, grid: Path, **config: Any) -> list[str]:
    common = [
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--workflow-profile",
        str(ROOT / "profiles" / "default"),
    ]
    config = {"scale": "ci", "grid": grid, "device": "cpu", **config}
    settings = ["--config", *(f"{name}={value}" for name, value in config.items())]
    return ["snakemake", *common, "--cores", "2", *words, *settings]


def snakemake(*words: str, cwd: Path, grid: Path, **config: Any) -> Done:
    return command(*snakemake_words(*words, grid=grid, **config), cwd=cwd)


def said(done: Done) -> str:
    return done.stdout + done.stderr


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]
