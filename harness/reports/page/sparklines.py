"""The history of a run as small charts: coordinates only, drawn by templates/runs.html.j2."""

import math
from dataclasses import dataclass

import pandas as pd

from harness.core.paths import AFTER

WIDTH, HEIGHT = 240, 80
X = "epoch"


@dataclass(frozen=True)
class Line:
    name: str
    points: str  # in the format of an SVG polyline
    last: float


@dataclass(frozen=True)
class Chart:
    """Columns with the same first word share a chart: loss_nt and loss_at, but not lr."""

    title: str
    lines: tuple[Line, ...]
    low: float
    high: float
    first_epoch: int
    last_epoch: int
    deployed: float  # x of the deployed epoch


def charts(history: pd.DataFrame, deployed_epoch: int) -> list[Chart]:
    """Leaves out values that exist only after a redistribution: single points, shown in the figures."""
    groups: dict[str, list[str]] = {}
    for name in history.columns.drop(X):
        if history[name].notna().any() and not name.endswith(AFTER):
            groups.setdefault(name.partition("_")[0], []).append(name)
    return [_chart(title, names, history, deployed_epoch) for title, names in groups.items()]


def _chart(title: str, names: list[str], history: pd.DataFrame, deployed_epoch: int) -> Chart:
    values = history[names]
    low, high = float(values.min().min()), float(values.max().max())
    first, last = int(history[X].min()), int(history[X].max())

    def x(epoch: float) -> float:
        return round(WIDTH * _share(epoch, first, last), 1)

    def line(name: str) -> Line:
        known = history[[X, name]].dropna()
        y = [HEIGHT * (1 - _share(value, low, high)) for value in known[name]]
        points = [f"{x(epoch):g},{height:.1f}" for epoch, height in zip(known[X], y, strict=True)]
        return Line(name, " ".join(points), float(known[name].iloc[-1]))

    return Chart(title, tuple(map(line, names)), low, high, first, last, x(deployed_epoch))


def _share(value: float, low: float, high: float) -> float:
    """The position of a value between two others; a constant lies in the middle."""
    return 0.5 if math.isclose(low, high, rel_tol=1e-9) else (value - low) / (high - low)
