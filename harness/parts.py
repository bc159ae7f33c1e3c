"""An evaluation shared by several jobs: which batches are whose, and what each job spent. Torch-free.

Batches are dealt out in turn, counted through all probes: AutoAttack's costs vary from batch to batch,
and many a probe has fewer batches than there are jobs. Who computes a batch changes nothing in it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from harness import paths
from harness.errors import expected
from harness.files import write_whole
from harness.provenance import cpu_seconds
from harness.runs import EvalRun

COSTS = ("seconds", "cpu_seconds")


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


def cost(began: float) -> dict[str, float]:
    """What this process has spent, on the clock since `began` and of CPU time in all."""
    return {"seconds": round(time.monotonic() - began, 2), "cpu_seconds": cpu_seconds()}


def write_part(
    results: Path, evaluation: EvalRun, part: Part, weights: str, batches: int, began: float
) -> None:
    """A part's last word: that its batches are there, and what they cost."""
    about = {"weights": weights, "batches": batches, **cost(began)}
    path = paths.part(results, evaluation.id, part.number, part.of)
    write_whole(path, json.dumps(about, indent=1) + "\n")


def spent(results: Path, evaluation: EvalRun, weights: str) -> dict[str, float]:
    """The sums over all parts that worked on these weights."""
    pattern = paths.part(results, evaluation.id, "*", "*")
    found = [read_part(path) for path in sorted(pattern.parent.glob(pattern.name))]
    own = [about for about in found if about["weights"] == weights]
    return {name: sum(about[name] for about in own) for name in COSTS}


def read_part(path: Path) -> dict:
    try:
        about = json.loads(path.read_text())
        return {"weights": about["weights"], **{name: float(about[name]) for name in COSTS}}
    except (ValueError, KeyError, TypeError):
        raise expected(
            f"what a part spent in {path}", "something else", "delete it and run that part again"
        ) from None
