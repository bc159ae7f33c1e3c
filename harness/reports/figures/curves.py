"""What a run wrote down while it trained, epoch by epoch."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.core import paths
from harness.core.errors import expected
from harness.core.paths import AFTER, read_history
from harness.core.statistics import wilson
from harness.grid.artefacts import Row
from harness.reports.figures.source import Source
from harness.reports.figures.style import PERCENT, legend, look, numbered, panels, pretty

_TITLES = {
    "loss": "training loss",
    "gamma": "mixing weight",
    "theorem2": "Theorem 2's term",
    "distance": "distance / norm",
}
_TOGETHER = {"distance": ("theorem2", "distance")}  # drawn above each other
TERMS = {"theorem2": "around the global learner", "theorem2_mean": "around the learners' mean"}
_WATCHED = ("natural:", "robust:")
_COLUMNS = 4
_GREY = "#666666"
# Not clipped: a 0 stands on the edge.
_HOLLOW: dict[str, Any] = {"ls": "none", "mfc": "none", "ms": 4.5, "clip_on": False}


def draw_curves(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A panel per method, a line per learner; several quantities stand above each other."""
    wanted, rows = source.artefact.show["of"], source.artefact.rows
    quantities = _TOGETHER.get(wanted, (wanted,))
    shown = [(quantity, row) for quantity in quantities for row in rows]
    together = len(quantities) > 1
    across = len(rows) if together else _COLUMNS
    figure, grid = panels(len(shown), across, (2.5, 2.0), more=(0.5, 0.4))
    drawn = [_panel(axes, source, *what) for axes, what in zip(grid.flat, shown, strict=False)]
    figure.supxlabel("epoch", fontsize=9)
    if not together:
        figure.supylabel(_TITLES[wanted], fontsize=9)
        return figure, pd.concat(drawn)
    for axes, quantity in zip(grid[:, 0], quantities, strict=True):
        axes.set_ylabel(_TITLES[quantity])
    for axes in grid.flat:
        _from_zero(axes)
    handles, _ = grid[0, -1].get_legend_handles_labels()
    legend(grid[0, -1], handles=handles + _kinds(), fontsize=7)
    return figure, pd.concat(drawn)


def _panel(axes: Axes, source: Source, quantity: str, row: Row) -> pd.DataFrame:
    history = read_history(source.results, row.runs[0])
    before = [name for name in history if not name.endswith(AFTER)]
    names = [name for name in before if name == quantity or name.startswith(f"{quantity}_")]
    if not names:  # a run of before this was written down
        path = paths.history(source.results, row.runs[0])
        remedy = f"delete {path.parent} to train it again"
        raise expected(f"{quantity} in {path}", "no such column", remedy)
    for number, name in enumerate(names):
        task = name.removeprefix(quantity).removeprefix("_")
        several = task or name in TERMS
        style = numbered(number) if several else look(source.plan, row.method)
        label = TERMS.get(name, source.plan.label(task) if task else quantity)
        _before_and_after(axes, history, name, style | {"label": pretty(label)})
    axes.set_title(pretty(source.plan.label(row.method)), fontsize=8, loc="left")
    if len(names) > 1 and quantity not in TERMS:  # whose lines are the same in every panel
        axes.legend(fontsize=7)
    return _long(history, names).assign(method=row.method, run=row.runs[0])


def _before_and_after(
    axes: Axes, history: pd.DataFrame, name: str, style: dict[str, Any], factor: float = 1
) -> None:
    """A line as each epoch ends; hollow points where a redistribution then changes the value."""
    axes.plot(history.epoch, factor * history[name], **style | {"marker": None})
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))  # whole epochs
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
    history = read_history(source.results, run.id)
    watched = [name for name in history if name.startswith(_WATCHED) and AFTER not in name]
    if not watched or run.watch is None:
        raise expected(f"a watched run for {source.artefact.name}", run.id, "give it a `watch`")
    tested = len(next(iter(source.trace(run.id).values())))
    figure, grid = pyplot.subplots(1, 2, figsize=(11, 3.6), sharex=True, layout="constrained")
    for axes, kind in zip(grid, _WATCHED, strict=True):
        for number, name in enumerate(name for name in watched if name.startswith(kind)):
            low, high = np.transpose([wilson(share * tested, tested) for share in history[name]])
            style = numbered(number) | {"label": _who(source, name)}
            shade = {"color": style["color"], "alpha": 0.12, "lw": 0}
            _before_and_after(axes, history, name, style, factor=100)
            axes.fill_between(history.epoch, 100 * low, 100 * high, **shade)
        axes.set_xlabel("epoch")
        handles, _ = axes.get_legend_handles_labels()
        after = any(name.startswith(kind) and name.endswith(AFTER) for name in history)
        legend(axes, handles=handles + (_kinds() if after else []))
    grid[0].set_ylabel(PERCENT)
    grid[0].set_title("natural images", loc="left")
    grid[1].set_title(f"PGD{run.watch.attack.steps} examples", loc="left")
    figure.text(1, 1, f"n = {tested} held-out images", ha="right", va="top", fontsize=7)
    return figure, _long(history, watched).assign(n=tested, run=run.id)


def _who(source: Source, name: str) -> str:
    target, _, origin = name.partition(":")[2].partition("<-")
    examples = f", examples of the {source.plan.label(origin)} learner" if origin else ""
    return pretty(f"{source.plan.label(target)} learner{examples}")
