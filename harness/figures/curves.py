"""What a run wrote down while it trained, epoch by epoch."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.artefacts import Row
from harness.errors import expected
from harness.figures.source import Source
from harness.figures.style import (
    PALETTE,
    PERCENT,
    legend_beside,
    look,
    numbered,
    pretty,
    whole_epochs,
)
from harness.statistics import wilson

_TITLES = {
    "loss": "training loss",
    "gamma": "mixing weight",
    "distance": "distance / norm of the global learner",
}
_COLUMNS = 4


def draw_curves(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A panel per method, a line per learner."""
    quantity, rows = source.artefact.show["of"], source.artefact.rows
    across = min(_COLUMNS, len(rows))
    down = -(-len(rows) // across)
    figure, grid = pyplot.subplots(
        down,
        across,
        figsize=(2.5 * across + 0.5, 2.0 * down + 0.4),
        squeeze=False,
        layout="constrained",
    )
    drawn = []
    for axes, row in zip(grid.flat, rows, strict=False):
        drawn.append(_panel(axes, source, row, quantity))
    for axes in grid.flat[len(rows) :]:
        axes.set_visible(False)
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel(_TITLES[quantity], fontsize=9)
    return figure, pd.concat(drawn)


def _panel(axes: Axes, source: Source, row: Row, quantity: str) -> pd.DataFrame:
    history = source.history(row.runs[0])
    names = [name for name in history if name == quantity or name.startswith(f"{quantity}_")]
    for number, name in enumerate(names):
        task = name.removeprefix(quantity).removeprefix("_")
        style = numbered(number) if task else look(source.plan, row.method)
        style["marker"] = None
        axes.plot(
            history.epoch,
            history[name],
            label=pretty(source.plan.label(task) if task else quantity),
            **style,
        )
    axes.set_title(pretty(source.plan.label(row.method)), fontsize=8, loc="left")
    whole_epochs(axes)
    if len(names) > 1:
        axes.legend(fontsize=7)
    long = history.melt("epoch", names, "quantity", "value")
    return long.assign(method=row.method, run=row.runs[0])


def draw_learners(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Natural accuracy of each network; robust accuracy of each under each learner's examples."""
    (row,) = source.artefact.rows
    run = source.plan.run(row.runs[0])
    history = source.history(run.id)
    watched = [name for name in history if ":" in name]
    if not watched or run.watch is None:
        raise expected(f"a watched run for {source.artefact.name}", run.id, "give it a `watch`")
    tested = len(next(iter(source.trace(run.id).values())))
    figure, grid = pyplot.subplots(1, 2, figsize=(11, 3.6), sharex=True, layout="constrained")
    for axes, kind in zip(grid, ("natural", "robust"), strict=True):
        for number, name in enumerate(name for name in watched if name.startswith(kind)):
            accuracy = history[name]
            low, high = np.transpose([wilson(share * tested, tested) for share in accuracy])
            style = numbered(number) | {"marker": None}
            axes.plot(history.epoch, 100 * accuracy, label=_who(source, name), **style)
            colour = PALETTE[number % len(PALETTE)]
            axes.fill_between(history.epoch, 100 * low, 100 * high, color=colour, alpha=0.12, lw=0)
        axes.set_xlabel("epoch")
        whole_epochs(axes)
        legend_beside(axes)
    grid[0].set_ylabel(PERCENT)
    grid[0].set_title("natural images", loc="left")
    grid[1].set_title(f"PGD{run.watch.attack.steps} examples", loc="left")
    figure.text(1, 1, f"n = {tested} held-out images", ha="right", va="top", fontsize=7)
    long = history.melt("epoch", watched, "quantity", "value")
    return figure, long.assign(n=tested, run=run.id)


def _who(source: Source, name: str) -> str:
    target, _, origin = name.partition(":")[2].partition("<-")
    words = [f"{source.plan.label(target)} learner"]
    words += [f"examples of the {source.plan.label(origin)} learner"] if origin else []
    return pretty(", ".join(words))
