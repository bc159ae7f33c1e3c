"""Drills: failures caused on purpose, at seeded random moments and places: `python -m drills`.

A drill prepares what it needs once and returns a function that runs one try. A try that survives
returns a few words on what happened; one that does not raises `LostError` with what was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random


class LostError(Exception):
    """Something finished was lost, a result is wrong, or no message says what to do."""


@dataclass(frozen=True)
class Try:
    number: int
    random: Random
    folder: Path  # its own, and empty


Attempt = Callable[[Try], str]


def demand(holds: object, lost: str) -> None:
    if not holds:
        raise LostError(lost)
