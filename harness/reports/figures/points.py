"""Accuracies with their intervals: against each other, along the variants of an ablation, or radii.

Points and not bars: what matters is the difference, and a bar would have to start at zero.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.grid.artefacts import VARIANT
from harness.reports.figures.source import Source
from harness.reports.figures.style import PERCENT, legend, look, numbered, pretty, spread, whiskers

_GREY = "#666666"


def axis_title(axis: str) -> str:
    """`c_1_to_7` and `averaging_t` are c and averaging: what follows says which values."""
    name = axis.partition("_")[0]
    return "c, epochs of 120" if name == "c" else pretty(name)


def draw_scatter(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Two accuracies against each other: ours filled, with intervals, the papers' hollow."""
    across, up = source.artefact.columns
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for method, part in source.cells.groupby("method", sort=False):
        x, y = part[part.column == across], part[part.column == up]
        style = look(source.plan, str(method)) | {"linestyle": "none"}
        seen = style | {"elinewidth": 0.8, "label": pretty(x.label.iloc[0])}
        axes.errorbar(x.ours, y.ours, whiskers(y), whiskers(x), **seen)
        axes.plot(x.published, y.published, markerfacecolor="none", **style)
    axes.set(xlabel=f"{pretty(across)} {PERCENT}", ylabel=f"{pretty(up)} {PERCENT}")
    grey: dict[str, Any] = {"color": _GREY, "marker": "o", "linestyle": "none"}
    filled = Line2D([], [], label="filled: ours", **grey)
    hollow = Line2D([], [], label="hollow: published", markerfacecolor="none", **grey)
    legend(axes, handles=[*axes.get_legend_handles_labels()[0], filled, hollow])
    return figure, source.cells


def draw_points(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A panel per variation, a series per column."""
    panels = source.artefact.panels
    widths = [len(panel.methods) + 1 for panel in panels]
    size = (max(5.0, 0.75 * sum(widths) + 1.5), 3.6)
    shared: Any = {"sharey": True, "width_ratios": widths, "squeeze": False}
    figure, grid = pyplot.subplots(1, len(panels), figsize=size, layout="constrained", **shared)
    table = source.cells.drop_duplicates(["method", "column"]).set_index(["column", "method"])
    shifts = spread(len(source.artefact.columns), 0.3)
    for axes, panel in zip(grid[0], panels, strict=True):
        labels = [source.plan.label(method) for method in panel.methods]
        ordered = all(label.replace(".", "", 1).isdigit() for label in labels)
        for number, column in enumerate(source.artefact.columns):
            part = table.loc[column].loc[list(panel.methods)]
            style = numbered(number) | ({} if ordered else {"linestyle": "none"})
            style |= {"elinewidth": 0.8, "label": pretty(column)}
            x = np.arange(len(part)) + shifts[number]
            axes.errorbar(x, part.ours, whiskers(part), **style)
        axes.set_xticks(range(len(labels)), [pretty(label) for label in labels])
        axes.set_xlim(-0.5, len(labels) - 0.5)
        if max(map(len, labels)) > 7:
            pyplot.setp(axes.get_xticklabels(), rotation=25, ha="right")
        axes.set_xlabel(", ".join(axis_title(axis) for axis in panel.axes))
    grid[0, 0].set_ylabel(PERCENT)
    legend(grid[0, -1])
    return figure, source.cells


def draw_sweep(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Two axes: a panel per column, a line per label of the first axis, along the second."""
    (panel,) = source.artefact.panels
    parts = zip(*(method.split(VARIANT) for method in panel.methods), strict=True)
    (base,), lines, along = (list(dict.fromkeys(labels)) for labels in parts)
    table = source.cells.set_index(["column", "method"])
    columns = source.artefact.columns
    across = -(-len(columns) // 2)
    figure, grid = pyplot.subplots(
        2, across, figsize=(9.5, 6.4), sharex=True, squeeze=False, layout="constrained"
    )
    shifts = spread(len(lines), 0.35)
    for axes, column in zip(grid.flat, columns, strict=False):
        for number, line in enumerate(lines):
            part = table.loc[column].loc[[VARIANT.join([base, line, at]) for at in along]]
            x = np.arange(len(along)) + shifts[number]
            style = numbered(number) | {"elinewidth": 0.5, "capsize": 0, "markersize": 4}
            axes.errorbar(x, part.ours, whiskers(part), label=pretty(line), **style)
        axes.set_title(f"{pretty(column)}, {PERCENT}", loc="left")
        axes.set_xticks(range(len(along)), [pretty(label) for label in along])
        axes.set_xlim(-0.5, len(along) - 0.5)  # with one value, too, a shift stays a small one
    for axes in grid[-1]:
        axes.set_xlabel(axis_title(panel.axes[1]))
    series = grid[0, 0].get_legend_handles_labels()
    figure.legend(*series, loc="outside right center", title=axis_title(panel.axes[0]))
    return figure, source.cells


def draw_radii(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Accuracy along the radius; a column without an attack is radius 0."""
    trained = source.plan.columns.pgd(source.dataset, "linf", 1).ball.radius
    radius = {cell.column: cell.meaning.radius for cell in source.artefact.cells}
    table = source.cells.assign(radius=source.cells.column.map(radius))
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for method, part in table.groupby("method", sort=False):
        style = look(source.plan, str(method))
        style |= {"elinewidth": 0.8, "label": pretty(part.label.iloc[0])}
        axes.errorbar(255 * part.radius, part.ours, whiskers(part), **style)
    axes.axvline(255 * trained, color=_GREY, linestyle=":", linewidth=1)
    axes.set(xlabel=pretty("l_inf radius (of 255)"), ylabel=PERCENT)
    axes.set_ylim(bottom=0)
    legend(axes)
    return figure, table
