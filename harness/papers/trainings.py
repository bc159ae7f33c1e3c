"""Numbers of a training itself, for claims: from its description and its history. Torch-free.

They are no columns of a table, have no images and so no intervals. None where a run did not measure it.

`best_epoch`: the epoch that is deployed. `theorem1_*`: how often Theorem 1's step held, over the epochs
after which two learners or more were in the mixture. `*_sag_*`: how far accuracy sags below the
straight line between two learners, at the deepest point; before the first redistribution, and before
any later one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.core import paths
from harness.core.paths import LINE, RISK
from harness.training.runs import TrainRun

if TYPE_CHECKING:
    import pandas as pd

BEST_EPOCH = "best_epoch"
_SLACK = 1e-6  # of a loss: rounding


def _deployed(results: Path, run: TrainRun) -> float:
    return 100 * paths.read_description(results, run.id)["deployed_epoch"] / run.recipe.epochs


def _step(results: Path, run: TrainRun, kind: str) -> float | None:
    history = paths.read_history(results, run.id)
    if f"{RISK}{kind}:mixture" not in history:
        return None
    mixed = history[history.theorem2_mean > 0]
    gap = mixed[f"{RISK}{kind}:mixture"] - mixed[f"{RISK}{kind}:learners"]
    return 100 * float((gap <= _SLACK).mean()) if len(gap) else None


def _sag(results: Path, run: TrainRun, kind: str, first: bool) -> float | None:
    depths = sags(paths.read_history(results, run.id), kind)
    chosen = depths[:1] if first else depths[1:]
    return max(chosen) if chosen else None


def sags(history: pd.DataFrame, kind: str) -> list[float]:
    """In points, redistribution by redistribution: the deepest of all points of all pairs."""
    names = [name for name in history if name.startswith(f"{LINE}{kind}:")]
    pairs: dict[str, list[str]] = {}
    for name in names:
        pairs.setdefault(name.split(":")[1], []).append(name)
    deepest = []
    for _, row in history.dropna(subset=names).iterrows() if names else ():
        lines = [100 * row[own].to_numpy(float) for own in pairs.values()]
        straight = [np.linspace(line[0], line[-1], len(line)) for line in lines]
        gaps = [ends - line for ends, line in zip(straight, lines, strict=True)]
        deepest.append(max(float(gap.max()) for gap in gaps))
    return deepest


# Name -> its unit, and how it is computed.
QUANTITIES: dict[str, tuple[str, Callable[[Path, TrainRun], float | None]]] = {
    BEST_EPOCH: (" % of the epochs", _deployed),
    **{
        f"theorem1_{kind}": (" % of the epochs with a mixture", partial(_step, kind=kind))
        for kind in ("natural", "robust")
    },
    **{
        f"{when}_sag_{kind}": (" points", partial(_sag, kind=kind, first=when == "first"))
        for when in ("first", "later")
        for kind in ("natural", "robust")
    },
}
