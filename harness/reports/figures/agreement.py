"""For each pair of methods: on how many images both fail, and on how many exactly one of them."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.core.statistics import mcnemar
from harness.evaluation.records import value
from harness.reports.figures.source import Source
from harness.reports.figures.style import panels, pretty
from harness.reports.palette import ON_PICTURE

_CELL = 0.3  # inches
_LABELS = 2.1  # inches beside the cells, for the longest label
_COUNTS = ["both_fail", "only_method_fails", "only_other_fails", "neither_fails"]


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A panel per column: above the diagonal both fail, below exactly one, on it the method itself."""
    methods = [row.method for row in source.artefact.rows]
    columns, pairs = source.artefact.columns, counted(source)
    side = _CELL * len(methods) + _LABELS
    figure, grid = panels(len(columns), 2, (side, side), more=(0.6, 0.3))
    shares = {column: _shares(pairs[pairs.column == column], methods) for column in columns}
    largest = max(float(share.max()) for share in shares.values())
    labels = [pretty(source.plan.label(method)) for method in methods]
    for axes, column in zip(grid.flat, columns, strict=False):
        _matrix(axes, shares[column], labels, largest)
        axes.set_title(pretty(column), loc="left")
    below = "Above the diagonal: both fail. Below: exactly one fails. On it: the method fails."
    figure.supxlabel(f"{below} In % of the test images.", fontsize=9)
    return figure, pairs


def counted(source: Source) -> pd.DataFrame:
    """One row per pair and column, and one of each method with itself; of the first seed."""
    rows = []
    for column in source.artefact.columns:
        cells = [cell for cell in source.artefact.cells if cell.column == column]
        fails = {c.method: ~value(c.formula, source.records[c.runs[0]][0]) for c in cells}
        pairs = [*((name, name) for name in fails), *combinations(fails, 2)]
        for one, other in pairs:
            mine, theirs = fails[one], fails[other]
            sets = (mine & theirs, mine & ~theirs, ~mine & theirs, ~mine & ~theirs)
            counts = [int(own.sum()) for own in sets]
            # As many as if one method's failures said nothing about the other's.
            chance = round(float(mine.mean() * theirs.mean()) * len(mine), 1)
            p = float(f"{mcnemar(mine, theirs):.3g}")
            rows.append((column, one, other, *counts, chance, p, len(mine)))
    fields = ["column", "method", "other", *_COUNTS, "both_fail_by_chance", "p", "n"]
    return pd.DataFrame(rows, columns=fields)


def _shares(pairs: pd.DataFrame, methods: list[str]) -> np.ndarray:
    """In percent, as they are drawn."""
    place = {method: number for number, method in enumerate(methods)}
    shares = np.zeros((len(methods), len(methods)))
    for pair in pairs.itertuples():
        one, other = place[str(pair.method)], place[str(pair.other)]
        shares[other, one] = 100 * (pair.only_method_fails + pair.only_other_fails) / pair.n
        shares[one, other] = 100 * pair.both_fail / pair.n  # on the diagonal, too
    return shares


def _matrix(axes: Axes, shares: np.ndarray, labels: list[str], largest: float) -> None:
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.8 * max(largest, 1))  # so dark text is legible
    for (down, across), share in np.ndenumerate(shares):
        bold = "bold" if down == across else "normal"
        text: Any = {"ha": "center", "va": "center", "fontsize": 6, "fontweight": bold}
        axes.text(across, down, f"{share:.0f}", color=ON_PICTURE, **text)
    axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right", fontsize=7)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
