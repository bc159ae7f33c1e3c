"""Effects of changes: each variant minus the method that it varies, and the sum against all at once."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure

from harness.core.statistics import Difference, against, paired
from harness.evaluation.records import value
from harness.reports.figures.source import Source
from harness.reports.figures.style import legend, numbered, pretty, spread, whiskers

SUM, REST = "sum of the above", "that minus the sum"


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A line per variant, a series per column; `show: {whole: ...}` is the row with every change."""
    columns, table = source.artefact.columns, differences(source)
    lines = list(dict.fromkeys(table.label))
    figure, axes = pyplot.subplots(figsize=(8.5, 0.36 * len(lines) + 1.4), layout="constrained")
    shifts = spread(len(columns), 0.4)
    for number, column in enumerate(columns):
        part = table[table.column == column].set_index("label").loc[lines]
        style: dict[str, Any] = numbered(number) | {"linestyle": "none", "elinewidth": 0.8}
        y = np.arange(len(part)) + shifts[number]
        axes.errorbar(part.ours, y, xerr=whiskers(part), label=pretty(column), **style)
    axes.axvline(0, color="#666666", linewidth=0.8)
    axes.set_yticks(range(len(lines)), [pretty(line) for line in lines])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    reference = source.plan.label(source.artefact.rows[0].method)
    axes.set_xlabel(f"points more or less than {pretty(reference)}")
    legend(axes)
    return figure, table


def differences(source: Source) -> pd.DataFrame:
    """Paired on the same images; the whole is set against the sum of the first variation."""
    plan, artefact, rows = source.plan, source.artefact, []
    reference = artefact.rows[0].method
    images = {
        (cell.method, cell.column): np.stack(
            [value(cell.formula, source.records[run][0]) for run in cell.runs]
        ).astype(float)
        for cell in artefact.cells
    }

    def add(method: str, label: str, column: str, found: Difference) -> None:
        numbers = [round(100 * number, 2) for number in (found.mean, found.low, found.high)]
        rows.append((method, label, column, *numbers, float(f"{found.p:.3g}")))

    (whole,), (first, *others) = artefact.show["whole"], artefact.panels
    parts = [method for method in first.methods if method not in (reference, whole)]
    more = [method for panel in others for method in panel.methods]
    for column in artefact.columns:
        old = images[reference, column]
        for method in parts:
            add(method, plan.label(method), column, paired(images[method, column], old))
        total = sum((images[method, column] - old for method in parts), np.zeros_like(old))
        add("", SUM, column, against(total, 0.0))
        for method in (whole, *more):
            add(method, plan.label(method), column, paired(images[method, column], old))
            if method == whole:
                add("", REST, column, against(images[method, column] - old - total, 0.0))
    table = pd.DataFrame(rows, columns=["method", "label", "column", "ours", "low", "high", "p"])
    return table.assign(n=len(source.labels))
