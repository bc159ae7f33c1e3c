"""The relations that a statement may have, as trees of comparisons. Torch-free.

A statement is an entry of config/claims.yaml or a line of reports/published/statements.csv.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from harness.core.errors import unknown
from harness.papers.comparisons import Comparison, Every, Number, Some, Tree


@dataclass(frozen=True)
class Statement:
    """One relation in one place. The entry is as in config/claims.yaml, with all methods by name."""

    entry: Mapping[str, Any]
    place: str  # artefact/data set/network
    classes: tuple[str, ...] = ()  # of the data set

    def number(self, method: str, column: Any, classes: tuple[str, ...] = (), **how: Any) -> Number:
        columns = (column,) if isinstance(column, str) else tuple(column)
        artefact, dataset, network = self.place.split("/")
        return Number(artefact, dataset, network, method, columns, classes, **how)

    @property
    def methods(self) -> list[str]:
        """All that it names; what is harder than something are classes."""
        keys = ["better", "alike", "as", "order", "peak", "front", "methods", "only", "where_wrong"]
        keys += [] if "harder" in self.entry else ["than"]
        return _flat(self.entry[key] for key in keys if key in self.entry)

    @property
    def columns(self) -> list[str]:
        limits = self.entry["above"] if "only" in self.entry else ()
        return _flat([*self.entry.get("columns", ()), *limits])

    @property
    def side(self) -> str:
        return "below" if self.entry.get("lower") else "above"

    def class_sets(self, key: str) -> list[tuple[str, ...]]:
        """Each class by itself, a list of classes as a whole; without the key, all images."""
        sets = self.entry.get(key, [()])
        sets = self.classes if sets == "each" else sets
        return [self.known([one] if isinstance(one, str) else one) for one in sets]

    def known(self, classes: Iterable[str]) -> tuple[str, ...]:
        for name in classes:
            if name not in self.classes:
                where = f"config/grid.yaml's {self.place.split('/')[1]}"
                raise unknown("class", name, self.classes, where)
        return tuple(classes)


def _flat(names: Iterable[str | Iterable[str]]) -> list[str]:
    return [one for some in names for one in ([some] if isinstance(some, str) else some)]


def _better(statement: Statement, column: Any) -> list[Tree]:
    """One row above another: on the same images, or by more on some classes than on the rest."""
    entry, number, side = statement.entry, statement.number, statement.side
    chain = entry.get("order")
    pairs = pairwise(chain) if chain else product(entry["better"], entry["than"])
    if "most_in" not in entry:
        return [
            Comparison(number(one, column, some), number(other, column, some), side)
            for some, (one, other) in product(statement.class_sets("classes"), pairs)
        ]
    most_in = statement.known(entry["most_in"])
    rest = tuple(name for name in statement.classes if name not in most_in)
    leads = [(one, {"quantity": "lead", "rivals": (other,)}) for one, other in pairs]
    return [
        Comparison(number(one, column, most_in, **how), number(one, column, rest, **how), side)
        for one, how in leads
    ]


def _alike(statement: Statement, column: Any) -> list[Tree]:
    """Each of the first within so many points of the second one's number."""
    number, entry = statement.number, statement.entry
    other = number(entry["as"], column)
    return [
        Comparison(number(one, column), other, "equal", float(entry["within"]))
        for one in entry["alike"]
    ]


def _peak(statement: Statement, column: Any) -> list[Tree]:
    """One row between the first and the last is above both of them."""
    rows = [statement.number(method, column) for method in statement.entry["peak"]]
    inner = rows[1:-1] or rows  # a pattern that matches no row: its name, which is not measured
    ends = (rows[0], rows[-1])
    tops = [Every(tuple(Comparison(top, end, statement.side) for end in ends)) for top in inner]
    return [Some(tuple(tops))]


def _harder(statement: Statement, column: Any) -> list[Tree]:
    number, easier = statement.number, statement.known(statement.entry["than"])
    return [
        Comparison(number(method, column, some), number(method, column, easier), "below")
        for method, some in product(statement.entry["methods"], statement.class_sets("harder"))
    ]


_LIMITS = {"above": "above", "below": "below", "at_most": "at most", "equals": "equal"}
_LIMITS |= {"deviation_below": "below"}


def _limit(statement: Statement, column: Any) -> list[Tree]:
    """A quantity of each method against a constant."""
    entry = statement.entry
    (key,) = (name for name in _LIMITS if name in entry)
    how = {
        "quantity": "deviation" if key == "deviation_below" else entry.get("quantity", "accuracy"),
        "rivals": tuple(entry.get("rivals", ())),
        "wrong_by": entry.get("where_wrong", ""),
    }
    limit = float(entry[key]), _LIMITS[key], entry.get("tolerance", 0.0)
    return [
        Comparison(statement.number(method, column, some, **how), *limit)
        for method, some in product(entry["methods"], statement.class_sets("classes"))
    ]


def _only(statement: Statement) -> Tree:
    """The method is above every limit; each other one is not above at least one of them."""

    def each(method: str, relation: str) -> list[Tree]:
        return [
            Comparison(statement.number(method, column), float(limit), relation)
            for column, limit in statement.entry["above"].items()
        ]

    others = [Some(tuple(each(other, "at most"))) for other in statement.entry["than"]]
    return Every((*each(statement.entry["only"], "above"), *others))


def _front(statement: Statement) -> Tree:
    """The area under one family's front against that of another, in two columns."""
    entry = statement.entry
    one, other = (
        statement.number(first, entry["columns"], quantity="area", rivals=tuple(rest))
        for first, *rest in (entry["front"], entry["than"])
    )
    return Comparison(one, other, statement.side)


# The key of an entry -> its comparisons in one column.
RELATIONS: dict[str, Callable[[Statement, Any], list[Tree]]] = {
    **dict.fromkeys(("better", "order"), _better),
    "alike": _alike,
    "peak": _peak,
    "harder": _harder,
    **dict.fromkeys(_LIMITS, _limit),
}


def tree(statement: Statement) -> Tree:
    if "only" in statement.entry:
        return _only(statement)
    if "front" in statement.entry:
        return _front(statement)
    (relation,) = (RELATIONS[name] for name in RELATIONS if name in statement.entry)
    parts = [part for column in statement.entry["columns"] for part in relation(statement, column)]
    return Some(tuple(parts)) if statement.entry.get("any") else Every(tuple(parts))
