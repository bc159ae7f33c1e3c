"""Mutations of the config: every key dropped, doubled or misspelt, every value replaced.

A mutation survives if it is refused in one sentence that names the place, or if something else is
planned, read or shown than before. `python -m drills.mutations` tries all of them and writes their
number into docs/reliability.md; the tests try a sample.

Planning the whole grid for each would take hours. So a mutation is tried in small grids (slices.py),
until one of them refuses it or plans something else. The first ones are those that name most of what
the mutation is about.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from drills import LostError, demand
from drills.commands import check_sentence
from drills.slices import SECTIONS, Slice, good, slices, strings
from harness.core.config import CONFIG, ROOT, fitting, parse_yaml, scales
from harness.core.errors import UserError, run_command
from harness.core.files import write_whole
from harness.core.process import provenance
from harness.grid.plan import Plan
from harness.papers import claims
from harness.reports import robustbench

FILES = ("grid", "presets", "claims", "papers", *(f"scales/{name}" for name in scales()))
REFUSED, CHANGED = "refused", "something else planned"
MEASURED = Path(__file__).parent / "measured" / "mutations.json"
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- written by python -m drills.mutations -->\n", "<!-- end of mutations -->\n"
Reading = Callable[[Any], Any]  # from a file's content to what becomes of it
_OTHERS: tuple[Any, ...] = ("text", 3, True, ["text"], {"text": 3}, None)
_NUMBER = re.compile(r"[\d./]+")


@dataclass(frozen=True)
class Mutation:
    file: str
    kind: str
    path: tuple[Any, ...]  # keys and places in lists; of a doubled key its number in the file
    value: Any = None  # the new value, or the new key

    def __str__(self) -> str:
        return f"{self.kind} in {self.file}: {'.'.join(map(str, self.path))} -> {self.value!r}"


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
        named = entry[0] if entry and section in (*SECTIONS, "axes", "artefacts", "left_out") else ""
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


def tried(chosen: Iterable[Mutation]) -> tuple[dict[str, dict[str, Counter[str]]], list[str]]:
    """How mutations end, by file and kind, and what went wrong."""
    found: dict[str, dict[str, Counter[str]]] = {}
    lost = []
    for mutation in chosen:
        try:
            ended = outcome(mutation)
        except LostError as error:
            lost.append(str(error))
            continue
        of_file = found.setdefault(f"{mutation.file}.yaml", {})
        of_file.setdefault(mutation.kind, Counter())[ended] += 1
    return found, lost


def table() -> str:
    """Two tables, by kind and by file, of what the last full run found."""
    about = json.loads(MEASURED.read_text())
    kinds: dict[str, Counter[str]] = {}
    files: dict[str, Counter[str]] = {}
    for file, own in about["found"].items():
        for kind, ended in own.items():
            kinds.setdefault(kind, Counter()).update(ended)
            files.setdefault(f"`config/{file}`", Counter()).update(ended)
    lines = [f"{about['tried']:,} mutations, {len(about['lost'])} tracebacks or silent passes.", ""]
    for what, counts in (("mutation", kinds), ("file", files)):
        lines += [f"| {what} | tried | {REFUSED} | {CHANGED} |", "|---|---:|---:|---:|"]
        for name, ended in counts.items():
            numbers = (ended.total(), ended[REFUSED], ended[CHANGED])
            lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
        lines.append("")
    made = about["made"]
    where = f"{made['processor']}, {made['system']}; commit {made['commit']}; {about['date']}"
    return "\n".join([*lines, f"{where}; {about['seconds']} s of one core.", ""])


def rendered(document: str) -> str:
    """The document with the current tables between their markers."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    every, began = [one for file in FILES for one in mutations(file)], time.process_time()
    found, lost = tried(every)
    seconds = round(time.process_time() - began)
    about = {"tried": len(every), "found": found, "lost": lost, "seconds": seconds}
    about |= {"date": date.today().isoformat(), "made": provenance()}
    write_whole(MEASURED, json.dumps(about, indent=1) + "\n")
    write_whole(DOCUMENT, rendered(DOCUMENT.read_text()))
    print("\n".join([*lost, table()]))
    sys.exit(bool(lost))


if __name__ == "__main__":
    run_command(main)
