"""Accuracy class by class."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from harness.core.statistics import interval
from harness.evaluation.records import value
from harness.reports.figures.source import Source
from harness.reports.figures.style import legend_beside, look, pretty, spread, whiskers


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    table, names = by_class(source), [source.class_name(c) for c in np.unique(source.labels)]
    columns, rows = source.artefact.columns, source.artefact.rows
    figure, grid = pyplot.subplots(
        len(columns),
        1,
        figsize=(9.5, 0.6 + 2.7 * len(columns)),
        squeeze=False,
        layout="constrained",
    )
    shifts = spread(len(rows), 0.7)
    for axes, column in zip(grid[:, 0], columns, strict=True):
        for number, row in enumerate(rows):
            part = table[(table.column == column) & (table.method == row.method)]
            style = {"markersize": 4} | look(source.plan, row.method) | {"linestyle": "none"}
            label = pretty(source.plan.label(row.method))
            x = np.arange(len(part)) + shifts[number]
            axes.errorbar(
                x, part.ours, whiskers(part), elinewidth=0.6, capsize=0, label=label, **style
            )
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        for edge in range(len(names) - 1):
            axes.axvline(edge + 0.5, color="#e4e4e4", linewidth=0.8)
        axes.grid(axis="x", visible=False)
        axes.set_ylabel(f"{pretty(column)} (%)")
        legend_beside(axes)
    grid[-1, 0].set_xlabel("class")
    return figure, table


def by_class(source: Source) -> pd.DataFrame:
    rows = []
    for cell in source.artefact.cells:
        right = value(cell.formula, source.records[cell.runs[0]][0])  # 1/2: under one attack of two
        for number in np.unique(source.labels):
            own = right[source.labels == number]
            low, high = interval(own[None])
            rows.append(
                {
                    "method": cell.method,
                    "column": cell.column,
                    "class": source.class_name(int(number)),
                    "ours": round(100 * float(own.mean()), 2),
                    "low": round(100 * low, 2),
                    "high": round(100 * high, 2),
                    "n": len(own),
                    "run": cell.runs[0],
                }
            )
    return pd.DataFrame(rows)
