"""Small grids in which a mutation of the config is tried: an artefact and what it names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from typing import Any

from harness.core.config import CONFIG, fitting, merged, read_yaml, scales
from harness.grid.artefacts import rows_of
from harness.grid.plan import Plan

SECTIONS = ("datasets", "networks", "methods", "columns")  # and axes, by what varies
_ROLES = {"nt", "generalist_d_nt_linf"}
_PRESETS = {"unified", "released"}  # the default, and what data sets and networks name
_CHEAP = 20  # cells


@cache
def good(file: str) -> Any:
    return read_yaml(CONFIG / f"{file}.yaml")


def strings(tree: Any) -> set[str]:
    """All texts and keys in a tree; of `at@official` both parts."""
    if isinstance(tree, str):
        return {tree, *tree.split("@")}
    if isinstance(tree, dict):
        return strings([*tree, *tree.values()])
    return set().union(*map(strings, tree)) if isinstance(tree, list) else set()


@dataclass(frozen=True)
class Slice:
    """A part of the grid, at a scale: a few artefacts and what they name."""

    scale: str
    artefacts: tuple[tuple[str, Any], ...]  # not in the grid: made for a mutation
    names: frozenset[str]  # of artefacts that are in the grid
    cost: int

    @cached_property
    def entries(self) -> list[Any]:
        """Of its artefacts: the grid's, what the scale changes in them, and its own."""
        places = (good("grid"), good(self.scale))
        own = [place.get("artefacts", {}).get(name, {}) for place in places for name in self.names]
        return [*own, *(entry for _, entry in self.artefacts)]

    @cached_property
    def axes(self) -> set[str]:
        """Field names of methods may be those of axes, so these are not found among the words."""
        varied = [one for entry in self.entries for one in entry.get("vary", ())]
        return {axis for one in varied for axis in one["over"]}

    @cached_property
    def words(self) -> set[str]:
        """The names of everything else that it has, found by following names."""
        grid, scale = good("grid"), good(self.scale)
        axes = [grid["axes"][name] for name in self.axes]
        words = _ROLES | self.names | strings([*self.entries, *axes])
        before = -1
        while before != len(words):
            before = len(words)
            for section in SECTIONS:
                for name in words & grid[section].keys():
                    stands_in = scale.get(section, {}).get(name, name)
                    closed = section in ("datasets", "networks")
                    words = words | strings(stands_in if closed else grid[section][name])
        return words

    @cached_property
    def about(self) -> set[str]:
        """The words of its presets and data sets too, by which mutations find it."""
        grid, presets = good("grid"), good("presets")
        entries = [grid["methods"][name] for name in self.words & grid["methods"].keys()]
        classes = {entry["method"] for entry in entries} | {"single"}
        spoken = [own.get(c) for p, own in presets.items() if p in self.words for c in classes]
        return self.words | strings([own for own in spoken if own]) | classes

    def has(self, name: Any) -> bool:
        return not name or name in self.axes or name in self.words

    def of(self, grid: dict[str, Any], presets: Any) -> dict[str, Any]:
        """Its part of a grid, which may be mutated: names that the good grid lacks stay."""
        known = {**good("grid"), "presets": good("presets")}
        names = dict.fromkeys((*SECTIONS, "labels"), self.words)
        names |= {"artefacts": {*self.names}, "axes": self.axes, "presets": self.words | _PRESETS}
        kept = {**grid, "presets": presets}
        for section, own in kept.items():
            if isinstance(own, dict) and section in names:
                wanted = names[section] | (own.keys() - known[section].keys())
                kept[section] = {name: own[name] for name in own if name in wanted}
        if not self.names and grid.get("networks") is known["networks"]:
            kept["networks"] = {name: _faster(own) for name, own in kept["networks"].items()}
        if isinstance(kept.get("artefacts"), dict):
            kept["artefacts"] |= dict(self.artefacts)
        return kept

    def planned(self, grid: Any, presets: Any, scale: Any) -> Any:
        """What is planned, read and shown; the same steps as in `Plan.read`."""
        name = self.scale.removeprefix("scales/")
        content = fitting(self.of(grid, presets), "grid", "grid.yaml")
        return meaning(Plan(content, fitting(scale, "scale", f"{name}.yaml"), name))

    @cached_property
    def good(self) -> Any:
        return self.planned(good("grid"), good("presets"), good(self.scale))


def meaning(plan: Plan) -> Any:
    """All that becomes of a config: runs, records, artefacts, and what reports read beside these."""
    rows = {row.method for artefact in plan.artefacts.values() for row in artefact.rows}
    columns = {name for artefact in plan.artefacts.values() for name in artefact.columns}
    return (
        set(plan.runs),
        {run: evaluation.id for run, evaluation in plan.evaluations.items()},
        plan.artefacts,
        plan.jobs,
        {row: plan.label(row) for row in rows},
        list(plan.grid["labels"]),  # their order makes colours
        {name: plan.dataset(name) for name in plan.grid["datasets"] if name in plan.scale["datasets"]},
        {name: plan.network(name) for name in plan.grid["networks"] if name in plan.scale["networks"]},
        {name: plan.columns.column(name).get("published") for name in columns},
        {
            name: (entry.get("classes"), entry.get("data_parallel"))
            for name, entry in plan.grid["datasets"].items()
        },
        plan.grid["roles"],
        {key: plan.scale.get(key) for key in ("notice", "threads", "autoattack", "left_out")},
    )


def _faster(network: Any) -> Any:
    """With other learning rates, so that an entry which repeats ours is seen to count."""
    return {name: {**own, "lr": 3 * own["lr"]} for name, own in network.items()}


@cache
def slices() -> list[Slice]:
    """Every artefact at every scale, and a table of each method under each preset."""
    grid, found = good("grid"), []
    for file in (f"scales/{name}" for name in scales()):
        changes = good(file).get("artefacts", {})
        for name, entry in grid["artefacts"].items():
            entry = merged(entry, changes.get(name, {}))
            size = len(entry["datasets"]) * len(entry["networks"]) * len(rows_of(grid, entry))
            cost = size * (1 + len(entry.get("columns", ())))
            found.append(Slice(file, (), frozenset({name}), cost))
        presets = ["", *(f"@{name}" for name in good("presets") if name != "unified")]
        slugs = [slug + preset for slug in grid["methods"] for preset in presets]
        for slug in [*slugs, "at@unified"]:
            if slug in good(file).get("rows", [slug]):
                found.append(_table(file, methods=[slug]))
        for name, column in grid["columns"].items() if file == "scales/paper" else ():
            protocols = [key for key in ("released", "l2") if key in column]
            found += [_table(file, columns=[name], protocol=protocol) for protocol in protocols]
    Random(0).shuffle(found)  # neighbours are much alike
    return sorted(found, key=lambda own: own.cost > _CHEAP)


def _table(file: str, **changes: Any) -> Slice:
    """Of one method or column, with a recipe that presets change."""
    table = {"kind": "table", "title": "one", "recipe": {"epochs": 77, "batch_size": 77}}
    table |= {"datasets": ["cifar10"], "networks": ["resnet18", "wrn32_10"]}
    table |= {"methods": ["at"], "columns": ["NAT"], **changes}
    return Slice(file, (("one_row", table),), frozenset(), 2)
