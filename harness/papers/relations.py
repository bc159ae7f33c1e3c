"""One part of a claim as a tree of comparisons: the relations of config/claims.yaml. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from harness.core.errors import unknown
from harness.papers.verdicts import Comparison, Every, Number, Some, Tree

Names = Callable[[str | list[str], tuple[str, ...]], list[str]]  # what is written -> methods


@dataclass(frozen=True)
class Part:
    """A part of a claim at one place."""

    entry: Mapping[str, Any]
    place: str
    names: Names
    classes: tuple[str, ...]  # of the place's data set

    def methods(self, key: str, but: tuple[str, ...] = ()) -> list[str]:
        return self.names(self.entry[key], but)

    def number(self, method: str, column: str | list[str], **how: Any) -> Number:
        artefact, dataset, network = self.place.split("/")
        columns = (column,) if isinstance(column, str) else tuple(column)
        return Number(artefact, dataset, network, method, columns, **how)

    @property
    def lower(self) -> bool:
        return bool(self.entry.get("lower"))

    def pools(self, key: str) -> list[tuple[str, ...]]:
        """Sets of classes: each name by itself, a list as a whole; without the key, all images."""
        some = self.entry.get(key)
        if some is None:
            return [()]
        some = self.classes if some == "each" else some
        return [self.pool([one] if isinstance(one, str) else one) for one in some]

    def pool(self, names: list[str]) -> tuple[str, ...]:
        for name in names:
            if name not in self.classes:
                where = f"config/grid.yaml's {self.place.split('/')[1]}"
                raise unknown("class", name, self.classes, where)
        return tuple(names)


def _better(part: Part, column: Any) -> list[Tree]:
    better = part.methods("better")
    pairs = list(product(better, part.methods("than", tuple(better))))
    if "most_in" in part.entry:
        return [_most_in(part, column, one, other) for one, other in pairs]
    return _pairs(part, column, pairs)


def _most_in(part: Part, column: Any, one: str, other: str) -> Tree:
    """The lead over the other method is larger on these classes than on the rest."""
    there = part.pool(part.entry["most_in"])
    elsewhere = tuple(name for name in part.classes if name not in there)
    return Comparison(
        part.number(one, column, minus=other, classes=there),
        part.number(one, column, minus=other, classes=elsewhere),
        part.lower,
    )


def _order(part: Part, column: Any) -> list[Tree]:
    return _pairs(part, column, list(pairwise(part.entry["order"])))


def _pairs(part: Part, column: Any, pairs: list[tuple[str, str]]) -> list[Tree]:
    return [
        Comparison(
            part.number(one, column, classes=pool),
            part.number(other, column, classes=pool),
            part.lower,
        )
        for pool in part.pools("classes")
        for one, other in pairs
    ]


def _peak(part: Part, column: Any) -> list[Tree]:
    """One that is neither the first nor the last is above both of them."""
    rows = [part.number(method, column) for method in part.methods("peak")]
    inner = rows[1:-1] or rows  # a grid without these rows: one pattern, which nothing measures
    ends = (rows[0], rows[-1])
    tops = [Every(tuple(Comparison(top, end, part.lower) for end in ends)) for top in inner]
    return [Some(tuple(tops))]


def _harder(part: Part, column: Any) -> list[Tree]:
    easier = part.pool(part.entry["than"])
    return [
        Comparison(
            part.number(method, column, classes=pool),
            part.number(method, column, classes=easier),
            lower=True,
        )
        for method in part.methods("methods")
        for pool in part.pools("harder")
    ]


def _threshold(part: Part, column: Any) -> list[Tree]:
    lower = "below" in part.entry
    wrong_by = part.entry.get("where_wrong", "")
    return [
        Comparison(
            part.number(method, column, classes=pool, wrong_by=wrong_by),
            float(part.entry["below" if lower else "above"]),
            lower,
        )
        for method in part.methods("methods")
        for pool in part.pools("classes")
    ]


def _deviation(part: Part, column: Any) -> list[Tree]:
    limit = float(part.entry["deviation_below"])
    numbers = [part.number(m, column, deviation=True) for m in part.methods("methods")]
    return [Comparison(number, limit, lower=True) for number in numbers]


def _only(part: Part) -> Tree:
    """Above every threshold; and of the others each is below one of them."""
    method, thresholds = part.entry["only"], part.entry["above"].items()
    own = [Comparison(part.number(method, column), float(limit)) for column, limit in thresholds]
    others = [
        Some(
            tuple(
                Comparison(part.number(other, column), float(limit), lower=True)
                for column, limit in thresholds
            )
        )
        for other in part.methods("than", (method,))
    ]
    return Every((*own, *others))


# What a part has -> its comparisons in one column.
RELATIONS: dict[str, Callable[[Part, Any], list[Tree]]] = {
    "better": _better,
    "order": _order,
    "peak": _peak,
    "harder": _harder,
    "above": _threshold,
    "below": _threshold,
    "deviation_below": _deviation,
}


def tree(part: Part) -> Tree:
    if "only" in part.entry:
        return _only(part)
    (relation,) = (RELATIONS[name] for name in RELATIONS if name in part.entry)
    found = [one for column in part.entry["columns"] for one in relation(part, column)]
    return Some(tuple(found)) if part.entry.get("any") else Every(tuple(found))
