"""Mutations of the config: every key dropped, doubled or misspelt, every value replaced.

A mutation passes if it is refused in one sentence that names the place, or if something else is planned,
read or shown than before. `python -m drills.mutations` tries all of them and writes their number into
docs/reliability.md; the tests try a sample.

Planning the whole grid for each would take hours. So a mutation is tried in small grids: one artefact and
what it names. The first ones are those that name most of what the mutation is about.
"""

from __future__ import annotations

import math
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from random import Random
from typing import Any

import yaml

from drills import LostError, demand
from drills.commands import check_sentence
from harness.core.config import CONFIG, ROOT, fitting, merged, parse_yaml, read_yaml, scales
from harness.core.errors import UserError
from harness.grid.artefacts import rows_of
from harness.grid.plan import Plan
from harness.papers import claims
from harness.reports import robustbench

FILES = ("grid", "presets", "claims", "papers", *(f"scales/{name}" for name in scales()))
REFUSED, CHANGED = "refused", "something else planned"
MEASURED = Path(__file__).parent / "measured" / "mutations.json"
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- written by python -m drills.mutations -->\n", "<!-- end of mutations -->\n"
_OTHERS: tuple[Any, ...] = ("text", 3, True, ["text"], {"text": 3}, None)
_CHEAP = 20
_NUMBER = re.compile(r"[\d./]+")
_SECTIONS = ("datasets", "networks", "methods", "columns")  # and axes, by what varies
_ROLES = {"nt", "generalist_d_nt_linf"}
_PRESETS = {"unified", "released"}  # the default, and what data sets and networks name


@dataclass(frozen=True)
class Mutation:
    file: str
    kind: str
    path: tuple[Any, ...]  # keys and places in lists; of a doubled key its number in the file
    value: Any = None  # the new value, or the new key

    def __str__(self) -> str:
        return f"{self.kind} in {self.file}: {'.'.join(map(str, self.path))} -> {self.value!r}"


@cache
def good(file: str) -> Any:
    return read_yaml(CONFIG / f"{file}.yaml")


@cache
def text_of(file: str) -> str:
    return (CONFIG / f"{file}.yaml").read_text()


def mutations(file: str) -> Iterator[Mutation]:
    """All of a file; an entry that aliases stand for is mutated once."""
    for path, value, siblings in _entries(good(file)):
        key = path[-1]
        yield Mutation(file, "dropped", path)
        if isinstance(key, str):
            yield Mutation(file, "key misspelt", path, misspelt(key, siblings))
        others = [other for other in _OTHERS if type(other) is not type(value)]
        others += [value + 0.5] if type(value) is int else []
        for other in others:
            if not (isinstance(value, float) and other == 3):
                yield Mutation(file, "another type", path, other)
        for number in (math.nan, -math.inf):
            yield Mutation(file, "not finite", path, number)
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            yield Mutation(file, "text misspelt", path, misspelt(value, ()))
        if type(value) in (int, float):
            yield Mutation(file, "negative", path, -value or -1)
            yield Mutation(file, "huge", path, type(value)(10**30))
        elif isinstance(value, str) and _NUMBER.fullmatch(value):
            yield Mutation(file, "negative", path, f"-{value}")
            yield Mutation(file, "huge", path, "9" * 30)
    for number, _ in enumerate(_keys(file)):
        yield Mutation(file, "key doubled", (number,))


def _entries(tree: Any) -> Iterator[tuple[tuple, Any, Iterable]]:
    seen: set[int] = set()

    def inside(node: Any, path: tuple) -> Iterator[tuple[tuple, Any, Iterable]]:
        if not isinstance(node, dict | list) or id(node) in seen:
            return
        seen.add(id(node))
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield (*path, key), value, node
            yield from inside(value, (*path, key))

    return inside(tree, ())


def misspelt(word: str, taken: Iterable[str]) -> str:
    """Without its middle letter, or with one more."""
    middle = len(word) // 2
    shorter = word[:middle] + word[middle + 1 :]
    return shorter if shorter and shorter not in taken else f"{word}x"


def applied(tree: Any, mutation: Mutation) -> Any:
    """A mutated copy; what the mutation does not touch is shared."""

    def changed(node: Any, path: tuple) -> Any:
        key, *rest = path
        if rest:
            own = changed(node[key], tuple(rest))
        elif mutation.kind == "dropped":
            return _without(node, key)
        elif mutation.kind == "key misspelt":
            return {mutation.value if name == key else name: own for name, own in node.items()}
        else:
            own = mutation.value
        if isinstance(node, list):
            return [*node[:key], own, *node[key + 1 :]]
        return {**node, key: own}

    return changed(tree, mutation.path)


def _without(node: Any, key: Any) -> Any:
    if isinstance(node, list):
        return node[:key] + node[key + 1 :]
    return {name: own for name, own in node.items() if name != key}


@cache
def _keys(file: str) -> list[tuple[yaml.ScalarNode, bool]]:
    """The keys of a file, and whether they stand in braces."""
    found, seen = [], set()

    def inside(node: yaml.Node) -> None:
        if isinstance(node, yaml.ScalarNode) or id(node) in seen:
            return
        seen.add(id(node))
        for part in node.value:
            if isinstance(part, tuple):
                found.append((part[0], node.flow_style))
            inside(part[1] if isinstance(part, tuple) else part)

    inside(yaml.compose(text_of(file)))
    return found


def with_a_key_doubled(file: str, number: int) -> str:
    text, (key, in_braces) = text_of(file), _keys(file)[number]
    start, end = key.start_mark, key.end_mark
    between = ", " if in_braces else "\n" + " " * start.column
    return f"{text[: start.index]}{text[start.index : end.index]}: 0{between}{text[start.index :]}"


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
        changes = good(self.scale).get("artefacts", {})
        own = [merged(good("grid")["artefacts"][name], changes.get(name, {})) for name in self.names]
        return [*own, *(entry for _, entry in self.artefacts)]

    @cached_property
    def axes(self) -> set[str]:
        """Field names of methods may be those of axes, so these are not found among the words."""
        entries = [*self.entries, *(good("grid")["artefacts"][name] for name in self.names)]
        varied = [one for entry in entries for one in entry.get("vary", ())]
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
            for section in _SECTIONS:
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

    def of(self, grid: Any, presets: Any) -> Any:
        """Its part of a grid, which may be mutated: names that no good grid has stay."""
        known = {**good("grid"), "presets": good("presets")}
        content = {**grid, "presets": presets} if isinstance(grid, dict) else grid
        kept, special = {}, {"artefacts": self.names, "axes": self.axes}
        special["presets"] = self.words | _PRESETS
        for section in content if isinstance(content, dict) else ():
            own = content[section]
            if isinstance(own, dict) and section in (*_SECTIONS, "labels", *special):
                words = special.get(section, self.words)
                own = {n: e for n, e in own.items() if n in words or n not in known[section]}
            kept[section] = own
        if (
            not self.names
            and isinstance(content, dict)
            and content.get("networks") is good("grid")["networks"]
        ):
            kept["networks"] = {name: _faster(own) for name, own in kept["networks"].items()}
        if isinstance(kept.get("artefacts"), dict):
            kept["artefacts"] = {**kept["artefacts"], **dict(self.artefacts)}
        return kept if isinstance(content, dict) else content

    def planned(self, grid: Any, presets: Any, scale: Any) -> Any:
        """What is planned, read and shown; the same steps as in `Plan.read`."""
        name = self.scale.removeprefix("scales/")
        content = fitting(self.of(grid, presets), "grid", "grid.yaml")
        return meaning(Plan(content, fitting(scale, "scale", f"{name}.yaml"), name))

    @cached_property
    def good(self) -> Any:
        return self.planned(good("grid"), good("presets"), good(self.scale))


def meaning(plan: Plan) -> Any:
    """All that becomes of a config: runs, records, artefacts, and what reports read of it beside these."""
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
        {name: entry.get("classes") for name, entry in plan.grid["datasets"].items()},
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


Reading = Callable[[Any], Any]  # from a file's content to what becomes of it


def readings(mutation: Mutation) -> Iterator[tuple[Reading, Callable[[], Any]]]:
    """Ways to read the mutated file, and what they gave before."""
    file, words = mutation.file, {step for step in mutation.path if isinstance(step, str)}
    if file == "claims":
        yield (lambda content: _claims(content, mutation)), lambda: _claims(good(file), mutation)
    elif file == "papers":
        yield _papers, lambda: _papers(good(file))
    else:
        words |= strings(_at(good(file), mutation.path))
        section, *entry = mutation.path
        named = entry[0] if entry and section in (*_SECTIONS, "axes", "artefacts", "left_out") else ""
        able = [own for own in slices() if file in ("grid", "presets", own.scale) and own.has(named)]
        able = [own for own in able if own.names or section != "rows"]
        for own in sorted(able, key=lambda own: -len(words & own.about)):
            yield _reading(own, file), lambda own=own: own.good  # type: ignore[misc]


def _at(tree: Any, path: tuple) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _reading(own: Slice, file: str) -> Reading:
    def read(content: Any) -> Any:
        files = {name: good(name) for name in ("grid", "presets", own.scale)} | {file: content}
        return own.planned(files["grid"], files["presets"], files[own.scale])

    return read


@cache
def _plan() -> Plan:
    return Plan.read("ci")


def _claims(content: Any, mutation: Mutation) -> Any:
    """The claims that a mutation is about."""
    section, *rest = mutation.path
    if isinstance(content, dict) and isinstance(content.get("claims"), list):
        every = content["claims"]
        if section == "claims" and len(rest) > 1:
            every = [every[rest[0]]]
        elif section in ("groups", "places") and rest:
            every = [claim for claim in every if rest[0] in strings(claim)] or every
        content = {**content, "claims": every}
    return claims.parse(fitting(content, "claims", "claims.yaml"), _plan())


def _papers(content: Any) -> Any:
    papers = robustbench.checked(fitting(content, "papers", "papers.yaml"), _plan())
    known = {name: robustbench._paper(_plan(), name, papers) for name in good("grid")["methods"]}
    return known, papers["architectures"], papers["papers"]


def outcome(mutation: Mutation) -> str:
    """How a mutation ends; a traceback or a silent pass is a `LostError`."""
    try:
        if mutation.kind == "key doubled":
            return _doubled(mutation)
        content = applied(good(mutation.file), mutation)
        for read, before in readings(mutation):
            if read(content) != before():
                return CHANGED
    except UserError as error:
        check_sentence(str(error))
        demand(_names_the_place(str(error), mutation), f"{mutation}: no place in {error}")
        return REFUSED
    except LostError:
        raise
    except Exception:
        raise LostError(f"{mutation}: {traceback.format_exc()}") from None
    raise LostError(f"{mutation}: accepted, and nothing differs")


def _doubled(mutation: Mutation) -> str:
    """Of a key that stands twice the sentence must tell both lines."""
    (number,) = mutation.path
    key, _ = _keys(mutation.file)[number]
    try:
        parse_yaml(with_a_key_doubled(mutation.file, number), f"{mutation.file}.yaml")
    except UserError as error:
        told = f"{key.value!r} in line {key.start_mark.line + 1} and again in line"
        demand(told in str(error), f"{mutation}: {told!r} is not in {error}")
        raise
    raise LostError(f"{mutation}: {key.value} may stand twice")


def _names_the_place(sentence: str, mutation: Mutation) -> bool:
    if mutation.kind == "key doubled":
        return True
    steps = [step for step in mutation.path if isinstance(step, str)]
    words = {*steps[-3:], *strings(mutation.value)}
    before = _at(good(mutation.file), mutation.path)
    words |= {before} if isinstance(before, str) else set()
    if mutation.file == "claims" and len(mutation.path) > 1 and mutation.path[0] == "claims":
        words.add(good("claims")["claims"][mutation.path[1]]["id"])
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence) for word in words)


def tried(chosen: Iterable[Mutation]) -> tuple[dict[str, Counter[str]], list[str]]:
    """How the mutations of each kind end, and what went wrong."""
    found: dict[str, Counter[str]] = {}
    lost = []
    for mutation in chosen:
        try:
            ended = outcome(mutation)
        except LostError as error:
            lost.append(str(error))
            continue
        found.setdefault(f"{mutation.file}.yaml: {mutation.kind}", Counter())[ended] += 1
    return found, lost
