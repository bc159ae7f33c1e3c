"""Where a result was made, and its cost: commit, package versions, hardware, CPU time. Torch-free."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.core.config import ROOT

PACKAGES = ("torch", "numpy", "scikit-learn", "pandas", "snakemake", "pyautoattack")


def provenance() -> dict[str, Any]:
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """The commit, with a + where the tree held changes on top of it."""
    try:
        git = ["git", "-C", str(ROOT)]
        commit = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        )
        if commit.returncode != 0:
            return "unknown"
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    return commit.stdout.strip() + ("+" if dirty.stdout.strip() else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
