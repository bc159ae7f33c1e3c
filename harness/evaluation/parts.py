"""An evaluation shared by several jobs: which batches are whose. Torch-free.

Batches are dealt out in turn, counted through all probes: AutoAttack's costs vary from batch to batch,
and many a probe has fewer batches than there are jobs. Who computes a batch changes nothing in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from harness.core import paths
from harness.core.errors import expected
from harness.core.files import write_whole
from harness.grid.probes import EvalRun


@dataclass(frozen=True)
class Part:
    """Every `of`-th batch, beginning with the `number`-th; part 1 of 1 is all of them."""

    number: int = 1
    of: int = 1

    @classmethod
    def read(cls, text: str) -> Part:
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise expected("--part 1/8 to 8/8", text, "say which part, and of how many")
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def takes(self, turn: int) -> bool:
        return turn % self.of == self.number - 1


def write_part(results: Path, evaluation: EvalRun, part: Part, weights: str, batches: int) -> None:
    """A part's last word: that its batches are there."""
    path = paths.part(results, evaluation.id, part.number, part.of)
    write_whole(path, json.dumps({"weights": weights, "batches": batches}, indent=1) + "\n")
