"""Test images with what each method makes of them, chosen by a rule and never by eye."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.evaluation.records import Record, value
from harness.grid.artefacts import Cell
from harness.grid.columns import Formula
from harness.reports.figures.source import Source
from harness.reports.figures.style import pretty
from harness.reports.palette import PALETTE

_SHOWN = 8
_LINE = 0.19  # of an image's height, per answer under it
_RIGHT, _WRONG = PALETTE[0], PALETTE[1]


def predicted(formula: Formula, records: Mapping[str, Record]) -> np.ndarray:
    """The class under attack; of several attacks, under the first that breaks the image."""
    if formula.op == "probe":
        return records[formula.parts[0]].predicted
    answers = predicted(formula.parts[0], records).copy()
    standing = value(formula.parts[0], records)
    for part in formula.parts[1:]:
        answers = np.where(standing, predicted(part, records), answers)
        standing = standing & value(part, records)
    return answers


def _verdicts(source: Source, cells: list[Cell]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Right or wrong, image by image: of the methods that the rule names, of the others; the names."""
    flags = {cell.method: value(cell.formula, source.records[cell.runs[0]][0]) for cell in cells}
    show = source.artefact.show
    named = [*show.get("right", ()), *show.get("wrong", ())]
    mine = np.array([flags[method] for method in named])
    others = [own for method, own in flags.items() if method not in named]
    return mine, np.array(others, dtype=bool).reshape(len(others), mine.shape[1]), named


def chosen(source: Source, cells: list[Cell]) -> np.ndarray:
    """The images that fit the rule, the first ones to be shown. `right`: these methods are right and
    some others wrong, the most first; `wrong`: these are wrong."""
    mine, others, _ = _verdicts(source, cells)
    if "right" in source.artefact.show:
        score = (~others).sum(axis=0)
        fit = mine.all(axis=0) & (score >= min(1, len(others)))
    else:
        score = np.zeros(mine.shape[1])  # the order of the test set
        fit = ~mine.any(axis=0)
    order = np.argsort(-score, kind="stable")
    return order[fit[order]]


def tally(source: Source, cells: list[Cell]) -> str:
    """How often the rule's methods are right against most others, and how often the reverse.

    Most and not all: under attack NT is never right, and with it there would be no reverse.
    """
    mine, others, named = _verdicts(source, cells)
    if not len(others):
        return ""
    right = (mine.all(axis=0) & (others.mean(axis=0) < 0.5)).sum()
    wrong = (~mine.any(axis=0) & (others.mean(axis=0) > 0.5)).sum()
    who = " and ".join(source.plan.label(method) for method in named)
    against = f"{right} of {mine.shape[1]} images; wrong where most are right: {wrong}"
    return f"{who} right where most others are wrong: {against}"


def picture(axes: Axes, source: Source, image: int, titled: bool = True) -> None:
    """A test image, as it is, and its class."""
    pixels = source.images.x[image]
    grey = len(pixels) == 1
    axes.imshow(pixels[0] if grey else pixels.transpose(1, 2, 0), cmap="gray" if grey else None)
    if titled:
        axes.set_title(pretty(source.class_name(int(source.labels[image]))), fontsize=8)


def _grid(
    down: int, size: tuple[float, float], answers: int, hspace: float
) -> tuple[Figure, np.ndarray]:
    """Bare axes, with room above for a line of text and the classes, below for the last answers."""
    figure, grid = pyplot.subplots(down, _SHOWN, figsize=size, squeeze=False)
    top, bottom = 1 - 0.5 / size[1], (0.2 + _LINE * answers) / size[1]
    figure.subplots_adjust(left=0.2, right=0.99, top=top, bottom=bottom, hspace=hspace)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    return figure, grid


def _write(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Places are shares of the image's width and height."""
    axes.text(x, y, pretty(text), transform=axes.transAxes, **{"fontsize": 7} | look)


def _beside(axes: Axes, text: str, y: float) -> None:
    _write(axes, -0.12, y, text, ha="right", va="top")


def _head(axes: Axes, shown: np.ndarray, counted: str) -> None:
    """Above a row of images, how typical they are; in their place that there are none."""
    _write(axes, 0, 1.3, counted, color="#555555")
    if not len(shown):
        _write(axes, 0, 0.5, "no image fits the rule", va="center", fontsize=9)


class _Answers:
    """Writes what methods say under images, and keeps it for the CSV."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rows: list[tuple] = []

    def write(self, axes: Axes, cell: Cell, image: int, place: int = 0) -> None:
        label, said = self.keep(cell, image)
        mark, colour = ("✓", _RIGHT) if said == label else ("✗", _WRONG)
        text = f"{self.source.class_name(said)} {mark}"
        _write(axes, 0.5, -0.08 - _LINE * place, text, color=colour, ha="center", va="top")

    def keep(self, cell: Cell, image: int, shown: bool = True) -> tuple[int, int]:
        """The image's label and the method's answer, which the CSV now has."""
        label = int(self.source.labels[image])
        said = int(predicted(cell.formula, self.source.records[cell.runs[0]][0])[image])
        names = (self.source.class_name(label), self.source.class_name(said))
        place = (cell.column, int(image), shown)
        self.rows.append((*place, label, cell.method, said, *names, cell.runs[0]))
        return label, said

    def table(self) -> pd.DataFrame:
        fields = ["column", "image", "shown", "label", "method", "predicted"]
        return pd.DataFrame(self.rows, columns=[*fields, "label_name", "predicted_name", "run"])


def draw_gallery(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Per column a row of images, and under each image every method's answer."""
    columns, answers = source.artefact.columns, _Answers(source)
    methods = len(source.artefact.rows)
    size = (1.25 * _SHOWN + 1.8, (1.6 + 0.2 * methods) * len(columns))
    figure, grid = _grid(len(columns), size, methods, hspace=0.5 + _LINE * methods)
    for line, column in zip(grid, columns, strict=True):
        cells = [cell for cell in source.artefact.cells if cell.column == column]
        line[0].set_ylabel(pretty(column), fontsize=10)
        for place, cell in enumerate(cells):
            _beside(line[0], source.plan.label(cell.method), -0.08 - _LINE * place)
        shown = chosen(source, cells)[:_SHOWN]
        _head(line[0], shown, tally(source, cells))
        for axes, image in zip(line, shown, strict=False):
            picture(axes, source, image)
            for place, cell in enumerate(cells):
                answers.write(axes, cell, image, place)
    return figure, answers.table()


def draw_heatmaps(source: Source) -> tuple[Figure, pd.DataFrame]:
    """Images above, and under them where each network looks.

    The CSV has every image that fits the rule: what a text says of one picture can be looked for.
    """
    cells, answers = list(source.artefact.cells), _Answers(source)
    fitting = chosen(source, cells)
    shown = fitting[:_SHOWN]
    down = len(cells) + 1
    figure, grid = _grid(down, (1.2 * _SHOWN + 1.8, 1.4 * down), answers=1, hspace=0.35)
    _head(grid[0, 0], shown, tally(source, cells))
    for axes, image in zip(grid[0], shown, strict=False):
        picture(axes, source, image)
    height, width = source.images.x.shape[2:]
    over: Any = {"cmap": "inferno", "alpha": 0.55, "interpolation": "bilinear"}
    over |= {"vmin": 0, "vmax": 255, "extent": (-0.5, width - 0.5, height - 0.5, -0.5)}
    for line, cell in zip(grid[1:], cells, strict=True):
        maps = source.records[cell.runs[0]][0][cell.formula.parts[0]].heat
        assert maps is not None
        _beside(line[0], source.plan.label(cell.method), 0.55)
        for axes, image in zip(line, shown, strict=False):
            picture(axes, source, image, titled=False)
            axes.imshow(maps[image], **over)
            answers.write(axes, cell, image)
    for image in fitting[_SHOWN:]:
        for cell in cells:
            answers.keep(cell, image, shown=False)
    return figure, answers.table()
