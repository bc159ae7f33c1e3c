"""What a job reports about itself: how far it is, what it cost, where it ran. Torch-free."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness.core.config import ROOT

PACKAGES = ("torch", "numpy", "scikit-learn", "pandas", "snakemake", "pyautoattack")
_REDRAW_SECONDS = 0.2
_LOG_SECONDS = 5.0


class Progress:
    """One line with the time left: redrawn on a terminal, printed now and then in a log."""

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.first = what, max(total, 1), done
        self.began = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.every = _REDRAW_SECONDS if self.terminal else _LOG_SECONDS
        self.last = self.began

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self.last < self.every and done < self.total:
            return
        self.last = now
        rate = (done - self.first) / max(now - self.began, 1e-9)
        left = _clock((self.total - done) / rate) if rate > 0 else "?"
        line = f"{self.what}  {100 * done // self.total:3d} %  {left} left  {note}"
        if self.terminal:
            end = "\n" if done >= self.total else ""
            print(f"\r\x1b[K{line}", end=end, file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, and CPU seconds of this process and its ended children."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @classmethod
    def now(cls) -> Cost:
        """A reading of the clocks; only the difference of two readings means something."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.monotonic(), sum(usage.ru_utime + usage.ru_stime for usage in used))

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.seconds - other.seconds, self.cpu_seconds - other.cpu_seconds)

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in asdict(self).items()}


def provenance() -> dict[str, Any]:
    """Where a result was made: commit, package versions, hardware."""
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
    """The commit, with a + if the tree had uncommitted changes."""
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
