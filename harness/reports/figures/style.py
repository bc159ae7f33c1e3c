"""One look for all figures: legible in print and on a screen, and without colour vision.

No two methods share a colour (palette.py). A method keeps its colour, marker and dash in every figure:
they follow its place in the grid's labels, so new methods go to the end of that list.
"""

import re
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.core.files import one_line
from harness.grid.plan import Plan
from harness.reports.cells import budget
from harness.reports.figures.source import Source
from harness.reports.palette import PALETTE, colour, place_of

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
_STAR = {"marker": "*", "markersize": 8}  # what a reader looks for first, among twenty methods
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "errorbar.capsize": 2,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "pdf.fonttype": 42,  # letters stay letters
}
PERCENT = "accuracy (%)"
_SIGNS = {"l_inf": r"$\ell_\infty$", "l_2": r"$\ell_2$", "l_1": r"$\ell_1$", "lambda": r"$\lambda$"}
_SIGNS |= {"gamma_1": r"$\gamma_1$", "gamma_2": r"$\gamma_2$", "gamma": r"$\gamma$"}


def pretty(text: str) -> str:
    """Norms and Greek letters as such; `AA_2` and `AA_inf` are columns of a norm.

    All that a figure writes and that comes from a config goes through here: a $ is no formula, and a
    legend leaves out what begins with _.
    """
    lines = (one_line(line).replace("$", r"\$") for line in text.split("\n"))
    text = re.sub(r"(?<=[A-Z0-9])_(?=inf|2\b|1\b)", " l_", "\n".join(lines))
    text = re.sub("|".join(_SIGNS), lambda found: _SIGNS[found[0]], text)
    return f" {text}" if text.startswith("_") else text


def look(plan: Plan, method: str) -> dict[str, Any]:
    """A method's own colour, marker and dash; `slug@preset` looks like its method. Ours are stars."""
    own = numbered(place_of(method, plan.grid["labels"]))
    return own | (_STAR if method.startswith(plan.grid["roles"]["ours"]) else {})


def numbered(place: int) -> dict[str, Any]:
    """The look of the n-th of a few series that are no methods."""
    lap = place // len(PALETTE)
    return {
        "color": colour(place),
        "marker": MARKERS[(place + lap) % len(MARKERS)],
        "linestyle": DASHES[lap % len(DASHES)],
    }


def whiskers(part: pd.DataFrame) -> np.ndarray:
    """How far the 95 % interval reaches below and above each number."""
    return np.array([part.ours - part.low, part.high - part.ours], dtype=float).clip(min=0)


def spread(count: int, width: float) -> np.ndarray:
    """Small shifts that keep `count` series from hiding each other."""
    return np.linspace(-width / 2, width / 2, count) if count > 1 else np.zeros(1)


def legend(axes: Axes, **settings: Any) -> None:
    """Beside the axes, where it hides nothing."""
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), **settings)


def panels(
    count: int, across: int, each: tuple[float, float], more: tuple[float, float] = (0, 0)
) -> tuple[Figure, np.ndarray]:
    """A grid of `count` panels of a size, with more room around them; the last row may be shorter."""
    across = min(across, count)
    down = -(-count // across)
    size = (each[0] * across + more[0], each[1] * down + more[1])
    figure, grid = pyplot.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, grid


def sign(figure: Figure, source: Source, drawn: pd.DataFrame) -> None:
    """Around every figure: its title, what it was measured with and on, and the scale's notice."""
    plan, artefact = source.plan, source.artefact
    words = [f"{plan.network(artefact.rows[0].network)} on {source.dataset}"]
    if artefact.columns:
        words.append(f"n = {len(source.labels)} test images")
    if "low" in drawn and artefact.columns:
        words.append("bars are 95 % intervals")
    if artefact.autoattack:
        shortened = f", shortened to {budget(plan)}" if budget(plan) else ""
        words.append(f"AutoAttack by {artefact.autoattack}{shortened}")
    text = "; ".join(words) + "\n" + plan.scale["notice"]
    figure.suptitle(pretty(artefact.title), y=1.0, va="bottom", fontsize=11)
    figure.text(0.5, 0, pretty(text), ha="center", va="top", fontsize=7, color="#555555")
