"""Two accuracies against each other: ours filled, with intervals, the papers' hollow."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.reports.figures.source import Source
from harness.reports.figures.style import legend_beside, look, pretty, whiskers


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    across, up = source.artefact.columns
    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for method, part in source.cells.groupby("method", sort=False):
        own = part.set_index("column")
        x, y, style = own.loc[[across]], own.loc[[up]], look(source.plan, str(method))
        style["linestyle"] = "none"
        label = pretty(x.label.iloc[0])
        axes.errorbar(
            x.ours, y.ours, whiskers(y), whiskers(x), elinewidth=0.8, label=label, **style
        )
        axes.plot(x.published, y.published, markerfacecolor="none", **style)
    axes.set_xlabel(f"{pretty(across)} accuracy (%)")
    axes.set_ylabel(f"{pretty(up)} accuracy (%)")
    handles, _ = axes.get_legend_handles_labels()
    grey: dict[str, Any] = {"color": "#666666", "marker": "o", "linestyle": "none"}
    handles += [
        Line2D([], [], label="filled: ours", **grey),
        Line2D([], [], label="hollow: published", markerfacecolor="none", **grey),
    ]
    legend_beside(axes, handles=handles)
    return figure, source.cells
