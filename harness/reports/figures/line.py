"""Accuracy along the straight line between two learners, before each redistribution."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from harness.core.paths import LINE, read_history
from harness.core.statistics import wilson
from harness.grid.artefacts import Row
from harness.reports.figures.source import Source
from harness.reports.figures.style import PERCENT, legend, panels, pretty

KINDS = {"natural": "natural images", "robust": "PGD examples of each point"}
_SHOWN = 7  # epochs in a legend


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    """A column per pair of learners, natural above robust; a line per redistribution."""
    table = pd.concat([measured(source, row) for row in source.artefact.rows])
    pairs = list(dict.fromkeys(zip(table.method, table.one, table.other, strict=True)))
    figure, grid = panels(2 * len(pairs), len(pairs), (3.4, 2.6), more=(1.4, 0.3))
    epochs = sorted(table.epoch.unique())
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(epochs)))
    for axes, (kind, pair) in zip(grid.flat, [(k, p) for k in KINDS for p in pairs], strict=True):
        for epoch, colour in zip(epochs, colours, strict=True):
            own = table[(table.kind == kind) & (table.epoch == epoch)]
            own = own[(own.method == pair[0]) & (own.one == pair[1]) & (own.other == pair[2])]
            style = {"color": to_hex(colour), "label": f"epoch {epoch}", "marker": "."}
            axes.plot(own.share, own.ours, **style)
        axes.set_title(KINDS[kind], loc="left", fontsize=8)
        ends = [pretty(source.plan.label(name)) for name in pair[1:]]
        axes.set_xticks([0, 0.5, 1], [ends[0], "half", ends[1]])
    for axes in grid[:, 0]:
        axes.set_ylabel(PERCENT)
    handles, labels = grid[0, -1].get_legend_handles_labels()
    kept = sorted(set(np.linspace(0, len(handles) - 1, min(_SHOWN, len(handles))).astype(int)))
    legend(grid[0, -1], handles=[handles[k] for k in kept], labels=[labels[k] for k in kept])
    for axes, (method, *_) in zip(grid[0], pairs, strict=True):
        axes.set_title(
            f"{pretty(source.plan.label(method))}\n{KINDS['natural']}", loc="left", fontsize=8
        )
    widest = float((table.high - table.low).max()) / 2  # drawn, ten of them would hide the lines
    tested = f"n = {table.n.max()} held-out training images; intervals are at most ±{widest:.1f} points"
    figure.supxlabel(tested, fontsize=7)
    return figure, table


def measured(source: Source, row: Row) -> pd.DataFrame:
    """What a run's history has of its lines, in percent with 95 % intervals."""
    history, rows = read_history(source.results, row.runs[0]), []
    n = len(next(iter(source.trace(row.runs[0]).values())))
    for name in (name for name in history if name.startswith(LINE)):
        kind, pair, share = name.removeprefix(LINE).split(":")
        for epoch, right in history[["epoch", name]].dropna().itertuples(index=False):
            percent = [round(100 * part, 2) for part in (right, *wilson(right * n, n))]
            rows.append((row.method, *pair.split(">"), kind, int(epoch), float(share), *percent))
    fields = ["method", "one", "other", "kind", "epoch", "share", "ours", "low", "high"]
    return pd.DataFrame(rows, columns=fields).assign(n=n, run=row.runs[0])
