"""Fronts of two accuracies, one for each variation: their areas, and who lies above whose front."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.core.fronts import area, bootstrap, gaps, resampled
from harness.core.statistics import Difference
from harness.evaluation.records import value
from harness.grid.artefacts import VARIANT, Panel
from harness.reports.figures.source import Source
from harness.reports.figures.style import PERCENT, numbered, pretty, whiskers
from harness.reports.palette import ON_PICTURE

AREA, ABOVE = "area", "above "  # columns of the CSV that no column of the grid is


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    artefact = source.artefact
    names = {panel: _name(source, panel) for panel in artefact.panels}
    tested = _tested(source, names)
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11.5, 4.8), layout="constrained", width_ratios=(1.5, 1)
    )
    for number, panel in enumerate(artefact.panels):
        _front(left, source, panel, numbered(number), _words(names[panel], tested))
    across, up = artefact.columns
    left.set(xlabel=f"{pretty(across)}, {PERCENT}", ylabel=f"{pretty(up)}, {PERCENT}")
    left.legend(loc="upper left", bbox_to_anchor=(0, -0.12))
    if len(names) > 1:
        _who_is_above(right, list(names.values()), tested)
    right.set_visible(len(names) > 1)
    return figure, pd.concat([source.cells, tested])


def _name(source: Source, panel: Panel) -> str:
    """What is varied, and in which way: `lambda_averaged` varies lambda."""
    base = source.plan.label(panel.methods[0].split(VARIANT)[0])
    varied = ", ".join(axis.partition("_")[0] for axis in panel.axes)
    return f"{base}: {varied}" if varied else base


def _tested(source: Source, names: dict[Panel, str]) -> pd.DataFrame:
    """Areas, and each point against each other front, in percent and points; of the first seed."""
    artefact, rows = source.artefact, []
    read = {run: records for run, (records, _) in source.records.items()}
    right = {(c.method, c.column): value(c.formula, read[c.runs[0]]) for c in artefact.cells}
    images = {
        panel: np.array([[right[method, one] for one in artefact.columns] for method in panel.methods])
        for panel in names
    }
    means = {panel: own.mean(axis=-1) for panel, own in images.items()}
    sizes, every = [len(own) for own in images.values()], resampled(np.concatenate([*images.values()]))
    drawn = dict(zip(images, np.split(every, np.cumsum(sizes)[:-1], axis=1), strict=True))

    def add(panel: Panel, method: str, column: str, scale: float, found: Difference) -> None:
        numbers = [round(scale * number, 2) for number in (found.mean, found.low, found.high)]
        rows.append((names[panel], method, column, *numbers, float(f"{found.p:.3g}")))

    for panel in names:
        areas = np.array([area(own) for own in drawn[panel]])
        add(panel, names[panel], AREA, 100, bootstrap(area(means[panel]), areas))
        for place, method in enumerate(panel.methods):
            for other in (other for other in names if other != panel):
                own, often = means[panel][place], drawn[panel][:, place]
                found = bootstrap(float(gaps(own, means[other])), gaps(often, drawn[other]))
                add(panel, method, f"{ABOVE}{names[other]}", 100, found)
    table = pd.DataFrame(rows, columns=["front", "method", "column", "ours", "low", "high", "p"])
    return table.assign(n=len(source.labels))


def _words(name: str, tested: pd.DataFrame) -> str:
    (own,) = tested[(tested.front == name) & (tested.column == AREA)].itertuples()
    return pretty(f"{name}, area {own.ours:.1f} [{own.low:.1f}, {own.high:.1f}]")


def _front(axes: Axes, source: Source, panel: Panel, style: dict[str, Any], label: str) -> None:
    table = source.cells.drop_duplicates(["method", "column"]).set_index(["column", "method"])
    x, y = (table.loc[column].loc[list(panel.methods)] for column in source.artefact.columns)
    style |= {"elinewidth": 0.5, "capsize": 0, "linewidth": 0.8}
    axes.errorbar(x.ours, y.ours, whiskers(y), whiskers(x), label=label, **style)
    for method, across, up in zip(panel.methods, x.ours, y.ours, strict=True):
        text = pretty(source.plan.label(method))
        place: Any = {"xytext": (4, 4), "textcoords": "offset points", "fontsize": 7}
        axes.annotate(text, (across, up), color=style["color"], **place)


def _who_is_above(axes: Axes, names: list[str], tested: pd.DataFrame) -> None:
    """How many points of a row's front lie above a column's front, below it, or cannot be told."""
    share = np.zeros((len(names), len(names)))
    for down, across in np.ndindex(share.shape):
        if down == across:
            continue
        own = tested[(tested.front == names[down]) & (tested.column == ABOVE + names[across])]
        above, below = int((own.low > 0).sum()), int((own.high < 0).sum())
        share[down, across] = (above - below) / len(own)
        text = f"{above} above\n{below} below\n{len(own) - above - below} open"
        axes.text(across, down, text, ha="center", va="center", fontsize=7, color=ON_PICTURE)
    axes.imshow(share, cmap="PuOr", vmin=-1.6, vmax=1.6)
    labels = [pretty(name.replace(": ", ":\n")) for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=45, ha="right", fontsize=7)
    axes.set_yticks(range(len(names)), labels, fontsize=7)
    axes.set_title("models of a row to the front of a column", loc="left", fontsize=9)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
