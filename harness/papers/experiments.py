"""What the papers say of one experiment in two places: rules for `audit.py`.

Settings that differ between documents or between caption and text, rows that are said to be one model,
rows that the text does not name, rows that are somebody else's, rows of two methods with equal
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from harness.papers.published import ROUNDING, ROW, SAME, Finding, Papers
from harness.papers.statements import Numbers, chosen, parts, place, said


def rows_said_to_be_one(papers: Papers) -> list[Finding]:
    """Two rows of which the text says that they are one model must have the same numbers."""
    found = []
    for statement in said(papers, {"same row"}):
        values = papers.values[papers.values.document == statement.document]
        values = values[values.artefact.isin(parts(statement.artefact))]
        table = values.assign(metric=values.metric.replace(SAME)).pivot_table(
            index="metric", columns="method", values="value"
        )
        shared = table[[statement.method, statement.than]].dropna()
        differ = shared[(shared.iloc[:, 0] - shared.iloc[:, 1]).abs() > ROUNDING]
        texts = [f"{m} {one:.2f} / {other:.2f}" for m, (one, other) in differ.iterrows()]
        if texts:
            where = f"{place(statement)} ({statement.artefact.replace(';', ' / ')})"
            found.append(Finding(where, ", ".join(texts)))
    return found


def methods_without_a_row(papers: Papers) -> list[Finding]:
    """A method that the text says is compared must have a row, and a row must be in the text."""
    found = []
    for statement in said(papers, {"has a row"}):
        values = papers.values[papers.values.document == statement.document]
        values = values[values.artefact.isin(parts(statement.artefact))]
        printed, told = set(values.method), set(parts(statement.method))
        spared = set(chosen(statement.than, list(printed)))
        missing, extra = sorted(told - printed), sorted(printed - told - spared)
        if missing or extra:
            text = f"in the text only: {', '.join(missing) or 'none'}; "
            text += f"in the tables only: {', '.join(extra) or 'none'}"
            found.append(Finding(place(statement), text))
    return found


def settings_that_differ(papers: Papers) -> list[Finding]:
    """Two places differ on one experiment: in one document, or in two that print the same rows."""
    found, settings = [], list(said(papers, {"setting"}))
    for one, other in combinations(settings, 2):
        if one.metric != other.metric or one.value == other.value or not _overlap(one, other):
            continue
        if one.document != other.document and _says_both(settings, one, other):
            continue  # that document's own contradiction is a finding already
        where = f"{one.document}, {one.place} / {other.document}, {other.place}: {one.metric}"
        scope = one.dataset and other.dataset and _common(one.dataset, other.dataset)
        where += f", {', '.join(scope)}" if scope else ""
        text = f"{one.value} / {other.value}"
        if one.document == other.document:
            found.append(Finding(where, text))
            continue
        same = _identical_rows(one, other, papers)
        if same:
            rows = "1 row is" if same == 1 else f"{same} rows are"
            found.append(Finding(where, f"{text}, and {rows} the same to the digit"))
    return found


def _says_both(settings: list[Any], one: Any, other: Any) -> bool:
    """Does either document itself say what the other one says, of the same experiment?"""
    return any(
        (s.document, s.metric, s.value) == (mine.document, mine.metric, theirs.value)
        and _overlap(s, mine)
        and _overlap(s, theirs)
        for mine, theirs in ((one, other), (other, one))
        for s in settings
    )


def _common(one: str, other: str) -> list[str]:
    return [part for part in parts(one) if part in parts(other)]


def _overlap(one: Any, other: Any) -> bool:
    fields = ("dataset", "network", "method")
    pairs = [(getattr(one, name), getattr(other, name)) for name in fields]
    return all(not a or not b or _common(a, b) for a, b in pairs)


def _identical_rows(one: Any, other: Any, papers: Papers) -> int:
    """How many rows within both scopes are printed in both documents with the same numbers."""
    count = 0
    for (dataset, network, method), tables in papers.by_row.items():
        for statement in (one, other):
            scopes = ((statement.dataset, dataset), (statement.network, network))
            if any(scope and name not in parts(scope) for scope, name in scopes):
                break
            if not chosen(statement.method, [method]):
                break
        else:
            sides = [
                [numbers for table, numbers in tables.items() if table.split()[0] == s.document]
                for s in (one, other)
            ]
            count += any(_same_numbers(a, b) for a in sides[0] for b in sides[1])
    return count


def _same_numbers(one: Numbers, other: Numbers) -> bool:
    shared = one.keys() & other.keys()
    return len(shared) > 1 and all(abs(one[name] - other[name]) <= ROUNDING for name in shared)


def rows_that_share_numbers(papers: Papers) -> list[Finding]:
    """Two methods on the same data set with the same network have an equal number in a column."""
    shared: dict[tuple, dict[str, float]] = {}  # (data set, network, methods) -> equal numbers
    tables: dict[tuple, set[str]] = {}
    for one, other in combinations(_rows(papers), 2):
        if one.place != other.place or one.method == other.method:
            continue
        equal = {m: n for m, n in one.numbers.items() if n and other.numbers.get(m) == n}
        if equal:
            key = (*one.place, *sorted((one.method, other.method)))
            shared.setdefault(key, {}).update(equal)
            tables.setdefault(key, set()).update((one.table, other.table))
    found = []
    for key, equal in sorted(shared.items(), key=lambda pair: -len(pair[1])):
        dataset, network, first, second = key
        where = f"{' / '.join(sorted(tables[key]))}: {dataset}, {network}, {first} and {second}"
        text = ", ".join(f"{metric} {number:.2f}" for metric, number in equal.items())
        known = "; the text says that they are one model" * _said_to_be_one(papers, first, second)
        found.append(Finding(where, text + known))
    return found + _by_chance(papers)


@dataclass(frozen=True)
class _Row:
    place: tuple[str, str]  # data set, network
    method: str
    table: str
    numbers: Numbers


def _rows(papers: Papers) -> list[_Row]:
    return [
        _Row((dataset, network), method, table, numbers)
        for (dataset, network, method), tables in papers.by_row.items()
        for table, numbers in tables.items()
    ]


def _said_to_be_one(papers: Papers, one: str, other: str) -> bool:
    """Does the text say so, of these two or of both and a third?"""
    pairs = [(statement.method, statement.than) for statement in said(papers, {"same row"})]
    same = {one}
    for _ in pairs:
        same |= {name for pair in pairs if same & set(pair) for name in pair}
    return other in same


def _by_chance(papers: Papers) -> list[Finding]:
    """Equal pairs within one column, against how many to expect by chance.

    Expected from the pairs that are less than a point apart, above or below: a window of 200 steps of
    0.01, of which equality is one.
    """
    equal = close = 0
    for _, column in papers.values[papers.values.value > 0].groupby([*ROW[:-1], "metric"]):
        gaps = [abs(one - other) for one, other in combinations(column.value, 2)]
        equal += sum(gap < ROUNDING for gap in gaps)
        close += sum(ROUNDING <= gap < 1 for gap in gaps)
    if not equal:
        return []
    text = (
        f"{equal} pairs of rows are equal in a column; about {close / 200:.1f} would be by chance"
    )
    return [Finding("all columns of all tables", text)]


def rows_of_others(papers: Papers) -> list[Finding]:
    """Rows "trained from scratch" that equal a leaderboard's entry in both numbers, to the digit."""
    found = []
    norms = {"Linf": ("AA", "AA_inf"), "L2": ("AA_2",)}
    own = {statement.document: statement for statement in said(papers, {"trained from scratch"})}
    for index, row in papers.rows.iterrows():
        document, artefact, dataset, arch, method = index
        if document not in own:
            continue
        for entry in papers.leaderboard[papers.leaderboard.dataset == dataset].itertuples():
            robust = [row[name] for name in norms[entry.threat] if pd.notna(row.get(name))]
            if row["NAT"] == entry.clean_acc and entry.autoattack_acc in robust:
                text = f"{entry.clean_acc} and {entry.autoattack_acc} are RobustBench's "
                text += f"{entry.entry} (its file says {entry.architecture})"
                where = (
                    f"{document}, {own[document].place} / {artefact}, {dataset}, {arch}, {method}"
                )
                found.append(Finding(where, text))
    return found
