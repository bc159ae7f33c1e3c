"""Accuracy class by class."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.core.statistics import interval
from harness.evaluation.records import value
from harness.reports.figures.source import Source
from harness.reports.figures.style import legend, look, panels, pretty, spread, whiskers


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    table, names = by_class(source), [pretty(source.class_name(c)) for c in np.unique(source.labels)]
    columns, rows = source.artefact.columns, source.artefact.rows
    figure, grid = panels(len(columns), 1, (9.5, 2.7), more=(0, 0.6))
    shifts = spread(len(rows), 0.7)
    for axes, column in zip(grid[:, 0], columns, strict=True):
        for number, row in enumerate(rows):
            part = table[(table.column == column) & (table.method == row.method)]
            style = {"markersize": 4} | look(source.plan, row.method)
            style |= {"linestyle": "none", "elinewidth": 0.6, "capsize": 0}
            label = pretty(source.plan.label(row.method))
            x = np.arange(len(part)) + shifts[number]
            axes.errorbar(x, part.ours, whiskers(part), label=label, **style)
        axes.set_xticks(range(len(names)), names)
        axes.set(xlim=(-0.5, len(names) - 0.5), ylabel=f"{pretty(column)} (%)")
        for edge in range(len(names) - 1):
            axes.axvline(edge + 0.5, color="#e4e4e4", linewidth=0.8)
        axes.grid(axis="x", visible=False)
        legend(axes)
    grid[-1, 0].set_xlabel("class")
    return figure, table


def by_class(source: Source) -> pd.DataFrame:
    rows = []
    for cell in source.artefact.cells:
        right = value(cell.formula, source.records[cell.runs[0]][0])  # 1/2: under one attack of two
        for number in np.unique(source.labels):
            own = right[source.labels == number]
            shares = (own.mean(), *interval(own[None]))
            percent = [round(100 * float(share), 2) for share in shares]
            name = source.class_name(int(number))
            rows.append((cell.method, cell.column, name, *percent, len(own), cell.runs[0]))
    fields = ["method", "column", "class", "ours", "low", "high", "n", "run"]
    return pd.DataFrame(rows, columns=fields)
