"""Tables and figures as the plan knows them: rows and columns, and the run behind every number."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from harness.core.config import merged
from harness.core.errors import unknown
from harness.core.paths import fingerprint
from harness.grid.build import Config, look_up
from harness.grid.columns import Column, Formula

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
    """One number: a row, and what its column means there."""

    meaning: Column

    @property
    def column(self) -> str:
        return self.meaning.name

    @property
    def formula(self) -> Formula:
        return self.meaning.formula


@dataclass(frozen=True)
class Panel:
    """The methods that stand side by side, and the axes that distinguish them."""

    axes: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Artefact:
    """A table or a figure."""

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
    attacks: Mapping[tuple[str, str], tuple[Column, ...]]  # (data set, network) -> what checks records
    panels: tuple[Panel, ...]  # one for each variation
    show: Config  # settings of a figure's kind
    published_rows: Mapping[str, str]  # our row -> the printed row beside it, where names differ

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(run for row in self.rows for run in row.runs))

    @property
    def folder(self) -> str:
        return "tables" if self.kind == "table" else "figures"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The last one holds the checks of the models that are shown."""
        views = (".md", ".tex") if self.kind == "table" else (".pdf", ".png")
        return (".csv", *views, ".json")


def only(entry: Config, rows: Collection[str], added: Collection[str]) -> dict[str, Any]:
    """An artefact's entry with the methods that a scale has or a grid adds. Variations are kept."""

    def has(row: str) -> bool:
        return row in rows or row.partition("@")[0] in added

    def kept(methods: Any) -> Any:
        return [name for name in methods if has(name)] if isinstance(methods, list) else methods

    shown = {key: kept(value) for key, value in entry.get("show", {}).items()}
    return {**entry, "methods": kept(entry.get("methods", [])), "show": shown}


def seed_count(entry: Config, dataset: str) -> int:
    """How many seeds an artefact's entry asks for, on all its data sets or on each."""
    wanted = entry.get("seeds", 1)
    if not isinstance(wanted, Mapping):
        return wanted
    for name in wanted.keys() - set(entry["datasets"]):
        raise unknown("data set", name, entry["datasets"], f"the seeds of {entry['title']!r}")
    return wanted.get(dataset, 1)


def variants(grid: Config, variation: Config) -> dict[str, Any]:
    """The entries of an ablation, `{of: method, over: [axis, ...]}`, by their slugs."""
    base, axes = variation["of"], variation["over"]
    known, where = grid["axes"], "config/grid.yaml's axes"
    choices = [look_up("axis", axis, known, where).items() for axis in axes]
    method = look_up("method", base, grid["methods"], "config/grid.yaml's methods")
    entries = {}
    for values in product(*choices):
        slug = VARIANT.join([base, *(str(label) for label, _ in values)])
        entries[slug] = reduce(merged, (fields for _, fields in values), method)
    return entries


def _file_name(name: str) -> str:
    """A name without what a label may hold and Snakemake reads as more than a name: {x} and <x>."""
    plain = re.sub(r"[^\w .,~+=()-]", "_", name)
    return name if plain == name else f"{plain}-{fingerprint(name)}"


ROBUSTBENCH = {"linf": "Linf", "l2": "L2"}  # norm -> RobustBench's name


@dataclass(frozen=True)
class Entry:
    """A model under one threat, for RobustBench: its AutoAttack cell and its natural cell."""

    artefact: Artefact
    robust: Cell
    natural: Cell

    @property
    def run(self) -> str:
        return self.robust.runs[0]  # a model is one training: the first seed

    @property
    def eps(self) -> str:
        """In grey levels where that is exact (36/255, not 12/85), else as a decimal (0.3)."""
        eps = self.robust.meaning.balls[0].eps
        levels = 255 * eps
        return f"{levels}/255" if levels.denominator == 1 else f"{float(eps):g}"


def entries(artefacts: Mapping[str, Artefact]) -> dict[str, list[Entry]]:
    """File name of a RobustBench entry -> the tables that have this model under this threat.

    Presets that come to the same training (`at`, and `at@last` where the last epoch is deployed anyway)
    are one model and go by the name of the first. A row that another table trains in another way
    (CIFAR-100: 200 or 120 epochs) is another model, and its name says in which table.
    """
    found: dict[tuple[str, ...], tuple[str, list[Entry]]] = {}
    first: dict[tuple[str, ...], str] = {}  # row -> its run in the first table that has it
    for artefact in artefacts.values():
        if artefact.kind != "table":
            continue
        cells = [((cell.dataset, cell.network, cell.method), cell) for cell in artefact.cells]
        natural = {row: cell for row, cell in cells if cell.meaning.attack == "none"}
        for row, cell in cells:
            if cell.meaning.attack != "aa" or row not in natural:
                continue
            norm = ROBUSTBENCH[cell.meaning.balls[0].norm]
            name = _file_name("_".join([*row, norm]).replace("@", "-"))
            entry = Entry(artefact, cell, natural[row])
            model = (*row[:2], cell.method.partition("@")[0], entry.run, norm)
            if first.setdefault(row, entry.run) != entry.run:
                name = f"{name}-{artefact.name}"
            found.setdefault(model, (name, []))[1].append(entry)
    return dict(found.values())
