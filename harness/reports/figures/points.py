"""Accuracies with their intervals along an axis: the variants of an ablation, or radii.

Points and not bars: what matters is the difference, and a bar would have to start at zero.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.grid.artefacts import VARIANT
from harness.reports.figures.source import Source
from harness.reports.figures.style import (
    PERCENT,
    legend_beside,
    look,
    numbered,
    pretty,
    spread,
    whiskers,
)

_TITLES = {"c": "c, epochs of 120", "gamma": "gamma"}


def axis_title(axis: str) -> str:
    """`c_1_to_7` and `averaging_t` are c and averaging: what follows says which values."""
    name = axis.partition("_")[0]
    return pretty(_TITLES.get(name, name))


def is_numeric(labels: list[str]) -> bool:
    return all(label.replace(".", "", 1).isdigit() for label in labels)


def draw_points(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A panel per variation, a series per column."""
    panels = source.artefact.panels
    widths = [len(panel.methods) + 1 for panel in panels]
    figure, grid = pyplot.subplots(
        1,
        len(panels),
        figsize=(max(5.0, 0.75 * sum(widths) + 1.5), 3.6),
        width_ratios=widths,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    table = source.cells.drop_duplicates(["method", "column"]).set_index(["column", "method"])
    shifts = spread(len(source.artefact.columns), 0.3)
    for axes, panel in zip(grid[0], panels, strict=True):
        labels = [source.plan.label(method) for method in panel.methods]
        ordered = is_numeric(labels)
        for number, column in enumerate(source.artefact.columns):
            part = table.loc[column].loc[list(panel.methods)]
            style = numbered(number) | ({} if ordered else {"linestyle": "none"})
            x = np.arange(len(part)) + shifts[number]
            axes.errorbar(
                x, part.ours, whiskers(part), elinewidth=0.8, label=pretty(column), **style
            )
        axes.set_xticks(range(len(labels)), [pretty(label) for label in labels])
        axes.set_xlim(-0.5, len(labels) - 0.5)
        longest = max(len(label) for label in labels)
        if longest > 7:
            axes.tick_params(axis="x", rotation=25)
            for tick in axes.get_xticklabels():
                tick.set_ha("right")
        axes.set_xlabel(", ".join(axis_title(axis) for axis in panel.axes))
    grid[0, 0].set_ylabel(PERCENT)
    legend_beside(grid[0, -1])
    return figure, source.cells


def draw_sweep(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Two axes: a panel per column, a line per label of the first axis, along the second."""
    (panel,) = source.artefact.panels
    parts = [method.split(VARIANT)[1:] for method in panel.methods]
    lines = list(dict.fromkeys(first for first, _ in parts))
    along = list(dict.fromkeys(second for _, second in parts))
    base = panel.methods[0].split(VARIANT)[0]
    table = source.cells.set_index(["column", "method"])
    columns = source.artefact.columns
    figure, grid = pyplot.subplots(
        2,
        -(-len(columns) // 2),
        figsize=(9.5, 6.4),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    shifts = spread(len(lines), 0.35)
    for axes, column in zip(grid.flat, columns, strict=False):
        for number, line in enumerate(lines):
            part = table.loc[column].loc[[VARIANT.join([base, line, at]) for at in along]]
            x = np.arange(len(along)) + shifts[number]
            style = numbered(number) | {"elinewidth": 0.5, "capsize": 0, "markersize": 4}
            axes.errorbar(x, part.ours, whiskers(part), label=pretty(line), **style)
        axes.set_title(f"{pretty(column)}, {PERCENT}", loc="left")
        axes.set_xticks(range(len(along)), along)
        axes.set_xlim(-0.5, len(along) - 0.5)  # with one value, too, a shift stays a small one
    for axes in grid[-1]:
        axes.set_xlabel(axis_title(panel.axes[1]))
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", title=axis_title(panel.axes[0]))
    return figure, source.cells


def draw_radii(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Accuracy along the radius; a column without an attack is radius 0."""
    dataset = source.plan.dataset(source.artefact.rows[0].dataset)
    trained = source.plan.columns.pgd(dataset, "linf", 1).ball.radius
    radius = {cell.column: cell.meaning.radius for cell in source.artefact.cells}
    table = source.cells.assign(radius=source.cells.column.map(radius))
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for method, part in table.groupby("method", sort=False):
        style = look(source.plan, str(method))
        label = pretty(part.label.iloc[0])
        axes.errorbar(
            255 * part.radius, part.ours, whiskers(part), elinewidth=0.8, label=label, **style
        )
    _mark(axes, 255 * trained)
    axes.set_xlabel(pretty("l_inf radius (of 255)"))
    axes.set_ylabel(PERCENT)
    axes.set_ylim(bottom=0)
    legend_beside(axes)
    return figure, table


def _mark(axes: Axes, x: float) -> None:
    axes.axvline(x, color="#666666", linestyle=":", linewidth=1)
