"""What a run wrote down while it trained, epoch by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.core import paths
from harness.core.errors import expected
from harness.core.paths import AFTER
from harness.core.statistics import wilson
from harness.grid.artefacts import Row
from harness.reports.figures.source import Source
from harness.reports.figures.style import (
    PALETTE,
    PERCENT,
    legend_beside,
    look,
    numbered,
    pretty,
    whole_epochs,
)

_TITLES = {
    "loss": "training loss",
    "gamma": "mixing weight",
    "theorem2": "Theorem 2's term",
    "distance": "distance / norm",
}
_TOGETHER = {"distance": ("theorem2", "distance")}  # drawn above each other
_TERMS = {"theorem2": "around the global learner", "theorem2_mean": "around the learners' mean"}
_WATCHED = ("natural:", "robust:")
_COLUMNS = 4
_GREY = "#666666"
_HOLLOW: dict[str, Any] = {
    "linestyle": "none",
    "markerfacecolor": "none",
    "markersize": 4.5,
    "clip_on": False,  # a 0 stands on the edge
}


def draw_curves(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A panel per method, a line per learner; several quantities stand above each other."""
    wanted, rows = source.artefact.show["of"], source.artefact.rows
    quantities = _TOGETHER.get(wanted, (wanted,))
    panels = [(quantity, row) for quantity in quantities for row in rows]
    across = min(_COLUMNS, len(rows)) if len(quantities) == 1 else len(rows)
    down = -(-len(panels) // across)
    figure, grid = pyplot.subplots(
        down,
        across,
        figsize=(2.5 * across + 0.5, 2.0 * down + 0.4),
        squeeze=False,
        layout="constrained",
    )
    drawn = []
    for axes, (quantity, row) in zip(grid.flat, panels, strict=False):
        drawn.append(_panel(axes, source, row, quantity))
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel("epoch", fontsize=9)
    if len(quantities) == 1:
        figure.supylabel(_TITLES[wanted], fontsize=9)
    for axes, quantity in zip(grid[:, 0], quantities, strict=False):
        axes.set_ylabel(_TITLES[quantity] if len(quantities) > 1 else "")
    if len(quantities) > 1:
        for axes in grid.flat:
            _from_zero(axes)
        handles, _ = grid[0, -1].get_legend_handles_labels()
        legend_beside(grid[0, -1], handles=handles + _kinds(), fontsize=7)
    return figure, pd.concat(drawn)


def _panel(axes: Axes, source: Source, row: Row, quantity: str) -> pd.DataFrame:
    history = source.history(row.runs[0])
    names = [name for name in history if name == quantity or name.startswith(f"{quantity}_")]
    names = [name for name in names if not name.endswith(AFTER)]
    if not names:  # a run of before this was written down
        path = paths.history(source.results, row.runs[0])
        remedy = f"delete {path.parent} to train it again"
        raise expected(f"{quantity} in {path}", "no such column", remedy)
    for number, name in enumerate(names):
        task = name.removeprefix(quantity).removeprefix("_")
        several = task or name in _TERMS
        style = numbered(number) if several else look(source.plan, row.method)
        label = _TERMS.get(name, source.plan.label(task) if task else quantity)
        _before_and_after(axes, history, name, style | {"label": pretty(label)})
    axes.set_title(pretty(source.plan.label(row.method)), fontsize=8, loc="left")
    whole_epochs(axes)
    if len(names) > 1 and quantity not in _TERMS:  # whose lines are the same in every panel
        axes.legend(fontsize=7)
    return _long(history, names).assign(method=row.method, run=row.runs[0])


def _before_and_after(
    axes: Axes, history: pd.DataFrame, name: str, style: dict[str, Any], factor: float = 1
) -> None:
    """A line as each epoch ends; hollow points where a redistribution then changes the value."""
    axes.plot(history.epoch, factor * history[name], **style | {"marker": None})
    if f"{name}{AFTER}" not in history:
        return
    after = history[f"{name}{AFTER}"]
    other = history[after.notna() & (after != history[name])]
    own = {"color": style["color"], "marker": style["marker"]}
    axes.plot(other.epoch, factor * other[f"{name}{AFTER}"], **own, **_HOLLOW)


def _from_zero(axes: Axes) -> None:
    """A logarithmic axis down to 0: distances shrink by orders, and overwritten learners have none."""
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    smallest = min(values[values > 0], default=1.0)
    axes.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(smallest)))
    axes.set_ylim(bottom=0)


def _kinds() -> list[Line2D]:
    """What a line and a hollow point mean, for a legend."""
    after = "hollow: then overwritten\nby the global learner"
    return [
        Line2D([], [], label="line: as the epoch ends", color=_GREY),
        Line2D([], [], label=after, color=_GREY, marker="o", **_HOLLOW),
    ]


def _long(history: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """One row per number that is drawn; what never was is no row."""
    every = [name for own in names for name in (own, f"{own}{AFTER}") if name in history]
    return history.melt("epoch", every, "quantity", "value").dropna(subset="value")


def draw_learners(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Natural accuracy of each network; robust accuracy of each under each learner's examples."""
    (row,) = source.artefact.rows
    run = source.plan.run(row.runs[0])
    history = source.history(run.id)
    watched = [name for name in history if name.startswith(_WATCHED) and AFTER not in name]
    if not watched or run.watch is None:
        raise expected(f"a watched run for {source.artefact.name}", run.id, "give it a `watch`")
    tested = len(next(iter(source.trace(run.id).values())))
    figure, grid = pyplot.subplots(1, 2, figsize=(11, 3.6), sharex=True, layout="constrained")
    for axes, kind in zip(grid, _WATCHED, strict=True):
        for number, name in enumerate(name for name in watched if name.startswith(kind)):
            accuracy = history[name]
            low, high = np.transpose([wilson(share * tested, tested) for share in accuracy])
            style = numbered(number) | {"label": _who(source, name)}
            _before_and_after(axes, history, name, style, factor=100)
            colour = PALETTE[number % len(PALETTE)]
            axes.fill_between(history.epoch, 100 * low, 100 * high, color=colour, alpha=0.12, lw=0)
        axes.set_xlabel("epoch")
        whole_epochs(axes)
        handles, _ = axes.get_legend_handles_labels()
        after = any(name.startswith(kind) and name.endswith(AFTER) for name in history)
        legend_beside(axes, handles=handles + (_kinds() if after else []))
    grid[0].set_ylabel(PERCENT)
    grid[0].set_title("natural images", loc="left")
    grid[1].set_title(f"PGD{run.watch.attack.steps} examples", loc="left")
    figure.text(1, 1, f"n = {tested} held-out images", ha="right", va="top", fontsize=7)
    return figure, _long(history, watched).assign(n=tested, run=run.id)


def _who(source: Source, name: str) -> str:
    target, _, origin = name.partition(":")[2].partition("<-")
    words = [f"{source.plan.label(target)} learner"]
    words += [f"examples of the {source.plan.label(origin)} learner"] if origin else []
    return pretty(", ".join(words))
