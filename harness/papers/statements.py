"""The papers' prose against their tables: rules for `audit.py`.

A statement is a line of statements.csv: a number, a comparison, a setting, or that two rows are one
model. The rules know the relations, not the statements: a new line is judged like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from itertools import permutations
from typing import Any

from harness.core.errors import expected, unknown
from harness.papers.published import ROUNDING, Finding, Papers

Numbers = dict[str, float]  # method -> its number in one column of one printed table


def parts(text: str) -> list[str]:
    return [part for part in str(text).split(";") if part]


def chosen(patterns: str, names: list[str], but: str = "") -> list[str]:
    """Names that a list such as `*;-generalist*` means, in their own order, without `but`."""
    wanted = [part for part in parts(patterns) if not part.startswith("-")] or ["*"]
    spared = [part[1:] for part in parts(patterns) if part.startswith("-")]
    return [
        name
        for name in names
        if any(fnmatch(name, pattern) for pattern in wanted)
        and not any(fnmatch(name, pattern) for pattern in spared)
        and name != but
    ]


def columns(statement: Any, papers: Papers) -> Iterator[tuple[str, str, Numbers]]:
    """The printed columns that a statement speaks of: where each is, its metric, its numbers."""
    values = papers.values[papers.values.document == statement.document]
    fields = {"artefact": statement.artefact, "dataset": statement.dataset}
    fields |= {"arch": statement.network, "metric": statement.metric}
    for name, wanted in fields.items():
        if wanted:
            values = values[values[name].isin(parts(wanted))]
    if values.empty:
        remedy = "mend its line in reports/published/statements.csv"
        raise expected(f"printed numbers behind '{place(statement)}'", "none", remedy)
    for (artefact, dataset, arch, metric), column in values.groupby(
        ["artefact", "dataset", "arch", "metric"], sort=False
    ):
        where = f"{artefact}, {dataset}, {arch}"
        yield where, str(metric), dict(zip(column.method, column.value, strict=True))


def _digits(text: str) -> int:
    return len(text.partition(".")[2])


def _best(names: list[str], numbers: Numbers) -> str:
    return max(names, key=lambda name: numbers[name])


def _cut(numbers: Numbers, one: str, other: str) -> float:
    return 100 * (numbers[one] - numbers[other]) / (100 - numbers[other])


# What a number in the prose is said to be: relation -> (numbers, method, others) -> that number.
QUANTITIES: dict[str, Callable[[Numbers, str, list[str]], float]] = {
    "=": lambda numbers, method, others: numbers[method],
    "error =": lambda numbers, method, others: 100 - numbers[method],
    "best of these =": lambda numbers, method, others: numbers[_best(others, numbers)],
    "leads by": lambda numbers, method, others: numbers[method] - numbers[_best(others, numbers)],
    "cuts error by %": lambda numbers, method, others: _cut(
        numbers, method, _best(others, numbers)
    ),
}


def numbers_in_prose(papers: Papers) -> list[Finding]:
    """A number in the text must be the table's, as rounded there."""
    found = []
    for statement in said(papers, QUANTITIES):
        quantity = QUANTITIES[statement.relation]
        for where, metric, numbers in columns(statement, papers):
            for method in parts(statement.method) or [""]:
                others = chosen(statement.than, list(numbers), but=method)
                number = quantity(numbers, method, others)
                if abs(number - float(statement.value)) > 0.51 * 10 ** -_digits(statement.value):
                    text = f"said {statement.value}; {metric} in {where} gives {number:.2f}"
                    hint = _whose(statement, quantity, numbers)
                    found.append(Finding(place(statement), text + hint))
    return found


def _whose(statement: Any, quantity: Callable, numbers: Numbers) -> str:
    """Whose number it would be: another row's, or the distance between two rows."""

    def fits(number: float) -> bool:
        return abs(number - float(statement.value)) <= ROUNDING

    rows = [] if statement.than else [name for name in numbers if fits(quantity(numbers, name, []))]
    if rows:
        return f"; it is the number of {', '.join(rows)}"
    pairs = [p for p in permutations(numbers, 2) if fits(numbers[p[0]] - numbers[p[1]])]
    return f"; it is {pairs[0][0]} minus {pairs[0][1]}" if len(pairs) == 1 else ""


def _higher(numbers: Numbers, method: str, others: list[str], value: str) -> str:
    return _beaten("above", numbers, method, [n for n in others if numbers[n] >= numbers[method]])


def _lower(numbers: Numbers, method: str, others: list[str], value: str) -> str:
    return _beaten("below", numbers, method, [n for n in others if numbers[n] <= numbers[method]])


def _beaten(side: str, numbers: Numbers, method: str, by: list[str]) -> str:
    text = ", ".join(f"{name} {numbers[name]:.2f}" for name in by)
    return f"{method} {numbers[method]:.2f}, not {side} {text}" if by else ""


def _above(numbers: Numbers, method: str, others: list[str], value: str) -> str:
    return "" if numbers[method] > float(value) else f"{method} {numbers[method]:.2f}"


def _leads(numbers: Numbers, method: str, others: list[str], value: str) -> str:
    lead = numbers[method] - numbers[_best(others, numbers)]
    return "" if lead > float(value) else f"{method} leads by {lead:.2f}"


def _rank(numbers: Numbers, method: str, others: list[str], value: str) -> str:
    rank = 1 + sum(number > numbers[method] for number in numbers.values())
    return "" if rank == int(value) else f"{method} is number {rank}"


# A comparison in the prose: relation -> (numbers, method, others, value) -> what contradicts it.
COMPARISONS: dict[str, Callable[[Numbers, str, list[str], str], str]] = {
    "higher than": _higher,
    "lower than": _lower,
    "above": _above,
    "leads by more than": _leads,
    "rank": _rank,
}


def comparisons_in_prose(papers: Papers) -> list[Finding]:
    """What the text calls best, higher or the only one must be so in the tables; so must bold print."""
    found = []
    for statement in said(papers, {*COMPARISONS, "only above", "top two"}):
        judged, against = 0, []
        if statement.relation == "only above":
            judged, against = 1, _not_only(statement, papers)
        else:
            for where, metric, numbers in columns(statement, papers):
                judged += 1
                text = _contradiction(statement, numbers)
                against += [f"{metric} in {where}: {text}"] if text else []
        if against:
            share = f"not in {len(against)} of {judged} columns: " if judged > 1 else ""
            found.append(Finding(place(statement), share + "; ".join(against)))
    return found


def _contradiction(statement: Any, numbers: Numbers) -> str:
    methods = parts(statement.method)
    if statement.relation == "top two":
        top = sorted(numbers, key=lambda name: -numbers[name])[:2]
        least = min(numbers[name] for name in top)
        off = [name for name in methods if numbers[name] < least]
        text = ", ".join(f"{name} {numbers[name]:.2f}" for name in off)
        return f"{text} is not among {', '.join(f'{n} {numbers[n]:.2f}' for n in top)}" * bool(off)
    judge = COMPARISONS[statement.relation]
    texts = [
        judge(numbers, method, chosen(statement.than, list(numbers), but=method), statement.value)
        for method in methods
    ]
    return "; ".join(text for text in texts if text)


def _not_only(statement: Any, papers: Papers) -> list[str]:
    """Against: the method does not pass every threshold, or another one passes them all."""
    thresholds = dict(zip(parts(statement.metric), parts(statement.value), strict=True))
    passed: dict[str, list[bool]] = {}
    for _, metric, numbers in columns(statement, papers):
        for name, number in numbers.items():
            passed.setdefault(name, []).append(number > float(thresholds[metric]))
    others = chosen(statement.than, list(passed), but=statement.method)
    against = [] if all(passed[statement.method]) else [f"{statement.method} itself is not"]
    return against + [f"{name} is, too" for name in others if all(passed[name])]


def said(papers: Papers, relations: Any) -> Iterator[Any]:
    known = {*QUANTITIES, *COMPARISONS, *OTHERS}
    for statement in papers.statements.itertuples():
        if statement.relation not in known:
            raise unknown("relation", statement.relation, known, "reports/published/statements.csv")
        if statement.relation in relations:
            yield statement


def place(statement: Any) -> str:
    return f"{statement.document}, {statement.place}: {statement.said}"


OTHERS = {"only above", "top two", "same row", "has a row", "setting", "trained from scratch"}
