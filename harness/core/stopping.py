"""SIGTERM: end soon, and leave whole files behind. Slurm sends it before it kills.

A command ends at once, by the exception `Stopped`. Code that must not be interrupted runs under `held`
(a training step with its position) or `delayed` (the writing of a file). The exit code is the shell's
for a process that SIGTERM ended: not 0, which means done, nor 2 (a user error) or 1 (a crash).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

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
