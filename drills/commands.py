"""Commands as a user would give them, and what became of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drills import demand
from harness.core.config import ROOT

ENVIRONMENT = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
Done = subprocess.CompletedProcess


def command(*words: str, cwd: Path, check: bool = False, **settings) -> Done:
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


def snakemake_words(*words: str, grid: Path, **config) -> list[str]:
    common = [
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--workflow-profile",
        str(ROOT / "profiles" / "default"),
    ]
    config = {"scale": "ci", "grid": grid, "device": "cpu", **config}
    settings = ["--config", *(f"{name}={value}" for name, value in config.items())]
    return ["snakemake", *common, "--cores", "2", *words, *settings]


def snakemake(*words: str, cwd: Path, grid: Path, **config) -> Done:
    return command(*snakemake_words(*words, grid=grid, **config), cwd=cwd)


def said(done: Done) -> str:
    return done.stdout + done.stderr


def sentence(done: Done) -> str:
    """What a command that refused said: one line with what it expected, what it found, and a remedy."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    demand(done.returncode == 2, f"exit code {done.returncode}, not 2: {said(done)[-600:]}")
    demand(len(lines) == 1 and "Traceback" not in done.stderr, f"not one sentence: {done.stderr}")
    check_sentence(lines[0].removeprefix("error: "))
    return lines[0]


def check_sentence(text: str) -> None:
    demand("\n" not in text, f"more than one line: {text}")
    form = r".*expected .+, found:? .+; .+"
    demand(re.match(form, text), f"no sentence with expected, found, remedy: {text}")


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


def processes_in(folder: Path) -> list[int]:
    """Whoever works in a folder, orphan or not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if Path(os.readlink(entry)) == folder.resolve():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], object], seconds: float, lost: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        demand(time.monotonic() < deadline, f"{lost} within {seconds:.0f} s")
        time.sleep(0.01)
