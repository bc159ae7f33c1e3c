"""Drills: harm done to the harness on purpose, at seeded random moments and places, many times over.

A drill prepares what it needs once and returns what is done at every try. A try that survives says in a
few words what happened; one that does not raises `LostError` with what was lost. `python -m drills`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random


class LostError(Exception):
    """Something finished was lost, wrong, or left without a sentence that says what to do."""


@dataclass(frozen=True)
class Try:
    number: int
    random: Random
    folder: Path  # its own, and empty


Attempt = Callable[[Try], str]


def demand(holds: object, lost: str) -> None:
    if not holds:
        raise LostError(lost)
