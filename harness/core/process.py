"""The process of a job: how it ends on SIGTERM, how far it is, what it cost, where it runs. Torch-free.

Slurm sends SIGTERM before it kills. A command ends at once, by the exception `Stopped`. Code that must
not be interrupted runs under `held` (a training step with its position) or `delayed` (the writing of a
file). The exit code is the shell's for a process that SIGTERM ended: not 0, which means done, nor 2 (a
user error) or 1 (a crash).
"""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

CODE = 128 + signal.SIGTERM


class Stopped(BaseException):  # like KeyboardInterrupt: no `except Exception` may swallow it
    """SIGTERM came; the message says how to continue."""

    def __init__(self, where: str = "", remedy: str = "start the same command again") -> None:
        super().__init__(f"expected to come to the end, found SIGTERM{where}; {remedy}.")


class _Sigterm:
    came = False
    held = False


def listen() -> None:
    """Make SIGTERM raise `Stopped`, once: Slurm and a client may both send it."""
    signal.signal(signal.SIGTERM, _handle)


def _handle(*_: object) -> None:
    first, _Sigterm.came = not _Sigterm.came, True
    if first and not _Sigterm.held:
        raise Stopped


@contextmanager
def held() -> Iterator[None]:
    """Hold SIGTERM back; call `check` afterwards to act on one that came."""
    before, _Sigterm.held = _Sigterm.held, True
    try:
        yield
    finally:
        _Sigterm.held = before


@contextmanager
def delayed() -> Iterator[None]:
    """Delay SIGTERM to the end of the block, or further if a block around it holds it back."""
    before = _Sigterm.came
    with held():
        yield
    if _Sigterm.came and not before and not _Sigterm.held:
        raise Stopped


def hold() -> None:
    """Hold SIGTERM back for good: processes that train together ask `requested` after each step."""
    _Sigterm.held = True


def requested() -> bool:
    """Did SIGTERM come?"""
    return _Sigterm.came


def check() -> None:
    """Raise `Stopped` if SIGTERM was held back, or if its exception was lost in a destructor."""
    if _Sigterm.came:
        raise Stopped


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

    def update(self, done: float, note: str = "") -> None:
        if time.monotonic() - self.last >= self.every or done >= self.total:
            self.show(done, note)

    def show(self, done: float, note: str = "") -> None:
        """Draw the line now, however long ago the last one was."""
        now = self.last = time.monotonic()
        rate = (done - self.first) / max(now - self.began, 1e-9)
        left = clock((self.total - done) / rate) if rate > 0 else "?"
        line = f"{self.what}  {int(100 * done / self.total):3d} %  {left} left  {note}"
        if self.terminal:
            end = "\n" if done >= self.total else ""
            print(f"\r\x1b[K{line}", end=end, file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """8:05, or 2:08:05."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def lasting(hours: float) -> str:
    """A time in the unit that a person would use."""
    for size, unit in ((8766, "years"), (24, "days"), (1, "hours"), (1 / 60, "minutes")):
        if hours >= 2 * size:
            return f"{_three_digits(hours / size)} {unit}"
    return f"{_three_digits(3600 * hours)} seconds" if hours else "-"


def _three_digits(number: float) -> str:
    """At least: 1,009 has four, where a computer would write 1.01e+03."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


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
        "commit": commit(),
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


def commit() -> str:
    """The commit, with a + if the tree had uncommitted changes.

    Of this clone, whoever owns it; not of a repository around a copy, nor of one that git's variables
    name: a hook sets them. Of an installed copy, the one that it was built from (setup.py).
    """
    built = Path(__file__).resolve().parents[1] / "shipped" / "COMMIT"
    if built.is_file():
        return built.read_text().strip()
    git = ["git", "-C", str(Path(__file__).resolve().parents[2]), "--git-dir=.git", "--work-tree=."]
    git += ["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(git, env=own, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
