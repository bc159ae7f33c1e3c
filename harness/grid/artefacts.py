"""Tables and figures as the plan knows them: rows and columns, and the run behind every number."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product
from typing import Any

from harness.core.config import ROOT, merged
from harness.core.errors import expected, unknown
from harness.grid.build import Config, look_up
from harness.grid.columns import BY_IMAGE, RIGHT_OR_WRONG, Column, Formula
from harness.training.contracts import Method
from harness.training.learner import Single
from harness.training.runs import components

VARIANT = "~"  # base~label~label: a method with the fields that an axis changes
MANY = 1000


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
        views = (".md", ".tex") if self.kind == "table" else (".pdf", ".png", ".svg")
        return (".csv", *views, ".json")


@dataclass(frozen=True)
class Kind:
    """What a kind of artefact needs. All but a table show one data set and one network."""

    columns: tuple[int, int] = (1, MANY)  # at least, at most
    shows: Callable[[Column], bool] = lambda column: True
    show: tuple[str, ...] = ()  # one of these keys
    crossed: bool = False  # one variation over two axes
    watched: tuple[str, ...] | None = None  # a `watch`, with these keys
    rows: int = MANY  # at most


def _has_radius(column: Column) -> bool:
    return column.attack is not None


def _by_image(column: Column) -> bool:
    return column.formula.op in BY_IMAGE


def _decides(column: Column) -> bool:
    return column.formula.op in RIGHT_OR_WRONG


def _is_one_probe(column: Column) -> bool:
    return column.formula.op == "probe"


KINDS = {
    "table": Kind(),
    "scatter": Kind(columns=(2, 2)),
    "points": Kind(),
    "front": Kind(columns=(2, 2), shows=_by_image),
    "effects": Kind(shows=_by_image, show=("whole",)),
    "sweep": Kind(crossed=True),
    "radii": Kind(shows=_has_radius),
    "classes": Kind(shows=_by_image),
    "agreement": Kind(shows=_decides),
    "gallery": Kind(shows=_decides, show=("right", "wrong")),
    "heatmaps": Kind(columns=(1, 1), shows=_is_one_probe, show=("right", "wrong")),
    "curves": Kind(columns=(0, 0), show=("of",)),
    "learners": Kind(columns=(0, 0), watched=(), rows=1),
    "embedding": Kind(columns=(0, 0), watched=(), rows=1),
    "line": Kind(columns=(0, 0), watched=("line",)),
    "theory": Kind(columns=(0, 0), watched=("losses",)),
}
_OF_SEVERAL = ("gamma", "distance")  # curves of methods with several learners


@cache
def _rules() -> list[str]:
    """The rules of the workflow. Each artefact is one too, so it needs another name."""
    files = [ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")]
    found = "".join(path.read_text() for path in files)
    return [*re.findall(r"^(?:use )?rule (?:\w+ as )?(\w+)", found, re.MULTILINE), "index"]


def check(artefact: Artefact, entry: Config, methods: Mapping[str, Method]) -> None:
    """Refuses what could not be drawn or written; `methods` are by their slugs."""
    for wanted, found in _lacks(artefact, entry, methods):
        remedy = "change that entry (docs/adding-a-figure.md says what each kind wants)"
        raise expected(f"{wanted} for artefacts.{artefact.name}, a {artefact.kind}", found, remedy)


def _lacks(
    artefact: Artefact, entry: Config, methods: Mapping[str, Method]
) -> Iterator[tuple[str, object]]:
    kind, show, cells = KINDS[artefact.kind], artefact.show, artefact.cells
    least, most = kind.columns
    slugs = list(dict.fromkeys(row.method for row in artefact.rows))
    if artefact.name in _rules():
        yield "a name that no rule of the workflow has", artefact.name
    if not slugs:
        yield "a method among the scale's rows, or an entry in its left_out,", "neither"
    if artefact.kind != "table" and len(entry["datasets"]) + len(entry["networks"]) > 2:
        yield "one data set and one network", [*entry["datasets"], *entry["networks"]]
    if not least <= len(artefact.columns) <= most:
        count = f"{least} or more" if most == MANY else least or "no"
        yield f"{count} columns", list(artefact.columns) or "none"
    if [*show] != [key for key in kind.show if key in show] or bool(show) != bool(kind.show):
        yield f"show with {' or '.join(kind.show) or 'nothing'}", dict(show) or "none"
    if not all(show.values()):
        yield "a method to show among the scale's rows", "none"
    for name in [*show.get("right", ()), *show.get("wrong", ()), *show.get("whole", ())]:
        look_up("method", name, dict.fromkeys(slugs), f"the rows of {artefact.name}")
    if kind.crossed and ([len(panel.axes) for panel in artefact.panels] != [2] or entry.get("methods")):
        yield "one variation over two axes, without methods", entry.get("vary", "none")
    watched = kind.watched is not None
    if watched != bool(entry.get("watch")):
        yield "a watch" if watched else "no watch", entry.get("watch", "none")
    for key in kind.watched or ():
        if key not in entry["watch"]:
            yield f"a watch with {key}", entry["watch"]
    if len(artefact.rows) > kind.rows:
        yield "one row", slugs
    if watched or show.get("of") in _OF_SEVERAL:
        for alone in (slug for slug in slugs if _learners(methods[slug]) < 2):
            yield "methods of several learners", alone
    for cell in cells:
        if not kind.shows(cell.meaning):
            yield "columns that it can show", cell.column


def _learners(method: Method) -> int:
    return sum(isinstance(part, Single) for part in components(method))


def only(entry: Config, rows: Collection[str], added: Collection[str]) -> dict[str, Any]:
    """An artefact's entry with the methods that a scale has or a grid adds. Variations are kept."""

    def has(row: str) -> bool:
        return row in rows or row.partition("@")[0] in added or VARIANT in row

    def kept(methods: Any) -> Any:
        return [name for name in methods if has(name)] if isinstance(methods, list) else methods

    shown = {key: kept(value) for key, value in entry.get("show", {}).items()}
    return {**entry, "methods": kept(entry.get("methods", [])), "show": shown}


def seed_count(entry: Config, dataset: str) -> int:
    """How many seeds an artefact's entry asks for, on all its data sets or on each."""
    wanted = entry.get("seeds", 1)
    if not isinstance(wanted, Mapping):
        return wanted
    where = f"the seeds of {entry['title']!r}"
    for name in wanted.keys() - set(entry["datasets"]):
        raise unknown("data set", name, entry["datasets"], where)
    if dataset not in wanted:
        raise expected(f"{dataset} in {where}", ", ".join(wanted), "name every data set")
    return wanted[dataset]


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


def rows_of(grid: Config, entry: Config) -> list[str]:
    """The methods of an artefact's entry, variants included."""
    varied = [slug for variation in entry.get("vary", ()) for slug in variants(grid, variation)]
    return [*entry.get("methods", ()), *varied]
