"""Theorem 1's step and Theorem 2's term along a run."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.core.paths import RISK, read_history
from harness.reports.figures.curves import TERMS
from harness.reports.figures.source import Source
from harness.reports.figures.style import DASHES, numbered, panels, pretty

_LOSSES = {
    "learners": "weighted mean of the learners' losses",
    "mixture": "loss of the learners' weighted mean",
    "global": "loss of the global learner",
}
_SIDES = ("learners", "mixture")
_GAP = "step_"
_GAPS = {f"{_GAP}natural": "on natural images", f"{_GAP}robust": "under PGD"}
_PANELS = {
    f"{RISK}natural:": "loss on natural images",
    f"{RISK}robust:": "loss under PGD",
    _GAP: "the step: its right side minus its left",
    "theorem2": "Theorem 2's term",
}


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A line of panels per method: both sides of the step, natural and under attack; the term."""
    rows = source.artefact.rows
    figure, grid = panels(len(_PANELS) * len(rows), len(_PANELS), (3.3, 2.7), more=(0.3, 0.9))
    drawn = []
    for line, row in zip(grid, rows, strict=True):
        history = _with_gaps(read_history(source.results, row.runs[0]))
        for axes, (what, title) in zip(line, _PANELS.items(), strict=True):
            names = {f"{what}{name}": label for name, label in _LOSSES.items()}
            names = {_GAP: _GAPS, "theorem2": TERMS}.get(what, names)
            _lines(axes, history, names)
            axes.set_title(title, loc="left", fontsize=8)
            drawn.append(
                history.melt("epoch", list(names), "quantity", "value").assign(method=row.method)
            )
        line[0].set_ylabel(pretty(source.plan.label(row.method)))
    for axes in grid[-1, [0, 2, 3]]:
        axes.legend(loc="upper left", bbox_to_anchor=(-0.1, -0.25), fontsize=7)
    grid[-1, 1].set_xlabel("epoch")
    return figure, pd.concat(drawn).dropna(subset="value")


def _with_gaps(history: pd.DataFrame) -> pd.DataFrame:
    """The step holds where the weighted mean of the losses is not below the loss of the mean."""
    sides = {name: [f"{RISK}{name.removeprefix(_GAP)}:{side}" for side in _SIDES] for name in _GAPS}
    return history.assign(
        **{name: history[one] - history[other] for name, (one, other) in sides.items()}
    )


def _lines(axes: Axes, history: pd.DataFrame, names: dict[str, str]) -> None:
    for number, (name, label) in enumerate(names.items()):
        axes.plot(history.epoch, history[name], label=label, **numbered(number) | _own(number))


def _own(number: int) -> dict[str, Any]:
    """Dashes of its own: two lines that agree show both colours."""
    return {"markersize": 3, "linestyle": DASHES[number]}
