"""SIGTERM: Slurm's word before it kills, Snakemake's when it is stopped. Leave soon, in good order.

A command leaves at once, by an exception. What must not be cut in two is `held` (a training step
and what is counted of it) or `delayed` (the writing of a file); the exception then comes at its
end. The exit code is what a shell says of a process that SIGTERM ended: not 0, so nobody takes the
job for done, and neither a mistake's 2 nor a crash's 1.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

CODE = 128 + signal.SIGTERM


class Stopped(BaseException):  # like KeyboardInterrupt: no `except Exception` may swallow it
    """SIGTERM came; says how to go on."""

    def __init__(self, where: str = "", remedy: str = "start the same command again") -> None:
        super().__init__(f"expected to come to the end, found SIGTERM{where}; {remedy}.")


class _Sigterm:
    came = False
    held = False


def listen() -> None:
    """From here on SIGTERM raises `Stopped`, once: Slurm and a client may both send it."""
    signal.signal(signal.SIGTERM, _take)


def _take(*_: object) -> None:
    first, _Sigterm.came = not _Sigterm.came, True
    if first and not _Sigterm.held:
        raise Stopped


@contextmanager
def held() -> Iterator[None]:
    """No SIGTERM in here; whoever wants to heed one that came asks `check` afterwards."""
    before, _Sigterm.held = _Sigterm.held, True
    try:
        yield
    finally:
        _Sigterm.held = before


@contextmanager
def delayed() -> Iterator[None]:
    """A SIGTERM that comes in here is heeded right after, unless something around holds it back."""
    before = _Sigterm.came
    with held():
        yield
    if _Sigterm.came and not before and not _Sigterm.held:
        raise Stopped


def hold() -> None:
    """No SIGTERM from here on: who asks `asked` decides, together with others."""
    _Sigterm.held = True


def asked() -> bool:
    return _Sigterm.came


def check() -> None:
    """For a SIGTERM that was held back, or whose exception got lost in a destructor."""
    if _Sigterm.came:
        raise Stopped
