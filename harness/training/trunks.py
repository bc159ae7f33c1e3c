"""Runs that start from the states that other runs left; docs/decisions/0017-trunks.md.

Until its learners meet, Generalist is its learners' trainings side by side; and a run is the training
inside its average. So one training of these epochs serves them all, and each ends with the bits that it
would have alone. A state is a checkpoint, which also holds what judging its epochs found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import repeat
from operator import add
from pathlib import Path
from typing import Any

import torch

from harness.core import paths
from harness.core.paths import fingerprint
from harness.core.process import Cost
from harness.training.epochs import Position, Selector, read_checkpoint
from harness.training.runs import Stretch, parts


class Judges:
    """Judges a trunk's epochs for the runs that start from it: each has its own selection."""

    def __init__(self, stretch: Stretch, device: torch.device) -> None:
        run = stretch.run
        self.of = {
            fingerprint(judge): (judge, Selector(replace(run, selection=judge.selection), device))
            for judge in stretch.judges
        }
        self.rows: dict[str, list[dict[str, float]]] = {key: [] for key in self.of}

    def judge(self, training: Any, epoch: int) -> None:
        for key, (judge, selector) in self.of.items():
            judged = training.training if judge.inside else training
            self.rows[key].append(selector.judge(judged, epoch))

    def state(self) -> dict[str, Any]:
        return {
            key: {"best": selector.best, "rows": list(self.rows[key])}
            for key, (_, selector) in self.of.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        for key, (_, selector) in self.of.items():
            selector.best, self.rows[key] = state[key]["best"], list(state[key]["rows"])


def begun(stretch: Stretch, results: Path, steps: int) -> dict[str, Any] | None:
    """Where a stretch begins, as its checkpoint would say it; None where a state is missing, or was not
    judged for its run. `steps` are those of an epoch."""
    run, (first, *_) = stretch.run, stretch.owners
    own = () if stretch.end is not None or run.selection.use == "last" else (stretch.judge,)
    states = []
    for owner in stretch.owners:
        path, judges = paths.state(results, owner.id, stretch.begin), (*stretch.judges, *own)
        state = read_checkpoint(path, owner, judges if owner == first else ())
        if state is None:
            return None
        states.append(state)
    cost = sum((Cost(**state["cost"]) for state in states), Cost()).as_json()
    if stretch.end is not None:  # the next part of a trunk
        return {**states[0], "cost": cost}
    inner = [
        state["training"] if part == owner.method else state["training"]["of"]
        for part, owner, state in zip(parts(run.method), stretch.owners, states, strict=True)
    ]
    joined = getattr(run.method, "joined", None)
    found = states[0].get("judged", {}).get(fingerprint(stretch.judge), {})
    histories = zip(*(state["position"].history for state in states), strict=True)
    judged = zip(histories, found.get("rows", repeat({})), strict=False)
    rows = [{**_row(run.method, epoch, steps), **measured} for epoch, measured in judged]
    return {
        "training": joined(inner) if joined else inner[0],
        "position": Position(stretch.begin, history=tuple(rows)),
        "best": found.get("best"),
        "cost": cost,
    }


def _row(method: Any, rows: Sequence[Mapping[str, float]], steps: int) -> Mapping[str, float]:
    """An epoch of a run's history, of those of its parts."""
    if not hasattr(method, "joined"):
        return rows[0]
    all_the_weight = reduce(add, repeat(1 / steps, steps), 0.0)  # as steps add up to an epoch's mean
    weights = [all_the_weight, *repeat(0.0, len(rows) - 1)]
    return {"epoch": rows[0]["epoch"], **method.reported([row["loss"] for row in rows], weights)}
