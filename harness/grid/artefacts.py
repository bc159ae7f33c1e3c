"""What a plan says of a table or figure: its rows and columns, and the run behind every number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import unknown
from harness.grid.columns import Formula

VARIANT = "~"  # base~label~label: a method with the fields that an axis changes


@dataclass(frozen=True)
class Row:
    """One method as an artefact shows it: the papers' names, and a run per seed."""

    method: str
    dataset: str
    network: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Cell(Row):
    """One number: a row's column, and how it is computed from records."""

    column: str
    formula: Formula


@dataclass(frozen=True)
class Panel:
    """The methods that stand side by side, and the axes that tell them apart."""

    axes: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Artefact:
    name: str
    kind: str
    title: str
    caption: str
    protocol: str
    autoattack: str | None  # how AutoAttack is measured, for all rows: "components" or "cascade"
    published: str | Sequence[str]  # the printed table whose numbers stand beside ours, or several
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    cells: tuple[Cell, ...]
    panels: tuple[Panel, ...]  # one for each variation
    show: Mapping[str, Any]  # what a figure's kind must be told
    published_rows: Mapping[str, str]  # our row -> the printed row beside it, where names differ

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(run for row in self.rows for run in row.runs))

    @property
    def folder(self) -> str:
        return "tables" if self.kind == "table" else "figures"

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (".csv", ".md", ".tex") if self.kind == "table" else (".csv", ".pdf", ".png")


def only(entry: Mapping[str, Any], rows: Collection[str]) -> dict[str, Any]:
    """An artefact's entry with those of its methods that a scale has; a variation stays whole."""

    def kept(methods: Any) -> Any:
        return [name for name in methods if name in rows] if isinstance(methods, list) else methods

    shown = {key: kept(value) for key, value in entry.get("show", {}).items()}
    return {**entry, "methods": kept(entry.get("methods", [])), "show": shown}


def seed_count(entry: Mapping[str, Any], dataset: str) -> int:
    """How many seeds an artefact's entry asks for, on all its data sets or on each."""
    wanted = entry.get("seeds", 1)
    if not isinstance(wanted, Mapping):
        return wanted
    for name in wanted.keys() - set(entry["datasets"]):
        raise unknown("data set", name, entry["datasets"], f"the seeds of {entry['title']!r}")
    return wanted.get(dataset, 1)
