"""Comparisons of numbers, and the evidence for them. Torch-free.

A statement about results is a tree of comparisons (relations.py builds it). A source of numbers gives
the evidence for a comparison: the papers' printed numbers (printed.py) or our records (measured.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from harness.core.fronts import area
from harness.core.statistics import Difference
from harness.grid.plan import Plan

# Quantities of a method: from its own accuracy in percent and those of its rivals.
QUANTITIES: dict[str, Callable[[float, list[float]], float]] = {
    "accuracy": lambda own, rivals: own,
    "deviation": lambda own, rivals: own,  # over seeds; not computed from accuracies
    "error": lambda own, rivals: 100 - own,
    "best": lambda own, rivals: max([own, *rivals]),
    "lead": lambda own, rivals: own - max(rivals),
    "error cut": lambda own, rivals: 100 * (own - max(rivals)) / (100 - max(rivals)),
    "rank": lambda own, rivals: 1 + sum(number > own for number in rivals),
    # Of a family of models, in two columns: all models' numbers, in percent.
    "area": lambda own, rivals: 100 * area(np.reshape([own, *rivals], (-1, 2)) / 100),
}


@dataclass(frozen=True)
class Number:
    """A quantity of one method in one column of an artefact, or in the mean of several columns."""

    artefact: str
    dataset: str
    network: str
    method: str
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()  # only on images of these classes
    wrong_by: str = ""  # only on images that this method gets wrong
    quantity: str = "accuracy"
    rivals: tuple[str, ...] = ()  # methods that a lead or a rank is measured against, or of one front

    @property
    def row(self) -> tuple[str, str, str]:
        return self.dataset, self.network, self.method

    @property
    def column(self) -> str:
        if self.quantity == "area":
            return f"area of the front of {' and '.join(self.columns)}"
        name = self.columns[0] if len(self.columns) == 1 else f"mean of {', '.join(self.columns)}"
        return f"deviation of {name} over seeds" if self.quantity == "deviation" else name

    @property
    def accuracies(self) -> list[Number]:
        """The accuracies on all images that it is computed from; the method's own is the first."""
        methods = [name for name in (self.method, *self.rivals, self.wrong_by) if name]
        place = (self.artefact, self.dataset, self.network)
        each = [(one,) for one in self.columns] if self.quantity == "area" else [self.columns]
        return [Number(*place, method, columns) for method in methods for columns in each]

    def computed(self, accuracies: list[float]) -> float:
        """The quantity, from the numbers of its `accuracies`."""
        return QUANTITIES[self.quantity](accuracies[0], accuracies[1:])

    def absent(self, keys: Collection[tuple]) -> str:
        """The first of its names that no key of a table has, or the number as a whole."""
        for place, name in enumerate(self.row):
            if all(key[place] != name for key in keys):
                return name
        known = {key[-1] for key in keys}
        columns = [column for column in self.columns if column not in known]
        return ", ".join(columns) or f"{self.column} of {' '.join(self.row)}"


@dataclass(frozen=True)
class Comparison:
    """One number is `above`, `below`, `at most` or `equal` to another one or to a constant."""

    one: Number
    other: Number | float
    relation: str = "above"
    tolerance: float = 0.0  # of `equal`

    @property
    def accuracies(self) -> list[Number]:
        both = [number for number in (self.one, self.other) if isinstance(number, Number)]
        return [accuracy for number in both for accuracy in number.accuracies]

    def margin(self, one: float, other: float) -> float:
        """How far the numbers are on the stated side; negative if they are on the other side."""
        if self.relation == "equal":
            return self.tolerance - abs(one - other)
        return one - other if self.relation == "above" else other - one

    def holds(self, margin: float) -> bool:
        return margin > 0 or (margin == 0 and self.relation in ("at most", "equal"))


@dataclass(frozen=True)
class Every:
    """All parts are true."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Some:
    """At least one part is true."""

    parts: tuple[Tree, ...]


Tree = Comparison | Every | Some


def comparisons(tree: Tree) -> Iterator[Comparison]:
    if isinstance(tree, Comparison):
        yield tree
    else:
        for part in tree.parts:
            yield from comparisons(part)


@dataclass(frozen=True)
class Evidence:
    """Both numbers of a comparison, a text about them, and the test of their difference, if any."""

    one: float
    other: float
    text: str = ""
    test: Difference | None = None


class MissingError(Exception):
    """A source has no such number. `name` is what the reason is about, if it is not always the same."""

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.reason, self.name = reason, name


class Source:
    """A source of numbers: called with a comparison, it gives the evidence or raises MissingError."""

    def __init__(self, plan: Plan | None) -> None:
        self._label = plan.label if plan else str

    def label(self, method: str) -> str:
        """A row's label. A variant has its method's label and what varies."""
        base, *variant = method.split("~")
        return ", ".join([self._label(base), *variant])

    def subject(self, number: Number) -> str:
        """Which method a number is of, and on which images if not on all."""
        if number.quantity == "area":
            base, models = number.method.partition("~")[0], 1 + len(number.rivals)
            return f"{self._label(base)} ({models} models)"
        text = self.label(number.method)
        text += f" minus {self.label(number.rivals[0])}" if number.quantity == "lead" else ""
        text += f" on {', '.join(number.classes)}" if number.classes else ""
        return text + (f" where {self.label(number.wrong_by)} is wrong" if number.wrong_by else "")

    def describe(self, comparison: Comparison, found: Evidence) -> Evidence:
        """Evidence in words, in percent: both numbers, their difference, its interval, its own text."""
        number, rival = comparison.one, comparison.other
        one, other, test = found.one, found.other, found.test
        text = f"{number.column}, {number.dataset}, {number.network}: "
        text += f"{self.subject(number)} {one:.2f}"
        if isinstance(rival, Number):
            text += f" against {other:.2f} ({self.subject(rival)}), difference {one - other:+.2f}"
            text += f" [{test.low:+.2f}, {test.high:+.2f}]" if test else ""
        else:
            text += f" [{test.low + other:.2f}, {test.high + other:.2f}]" if test else ""
            text += f", claimed {'above' if comparison.relation == 'above' else 'below'} {other:g}"
        return replace(found, text=text + found.text)
