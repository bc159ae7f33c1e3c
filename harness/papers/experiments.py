"""What the papers' text says of experiments, against their tables: rules for `audit.py`.

Settings, rows that are one model, methods that have a row, models that were trained from scratch.
"""

from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import Any

import pandas as pd

from harness.papers.published import Finding, Papers, differing, matching, split
from harness.papers.statements import lines, source_of

_SCOPE = ("dataset", "network", "method")  # the fields that say what a setting is of


def rows_said_to_be_one(papers: Papers) -> Iterator[Finding]:
    """Two rows of which the text says that they are one model must have the same numbers."""
    by_row = papers.by_row
    for line in lines(papers, {"same row"}):
        where = f"{source_of(line)} ({line.artefact.replace(';', ' / ')})"
        tables = [f"{line.document} {name}" for name in split(line.artefact)]
        for (*place, method), own in by_row.items():
            same = by_row.get((*place, line.than), {}) if method == line.method else {}
            for one, other in permutations(tables, 2):
                differ = differing(own.get(one, {}), same.get(other, {}))
                if differ:
                    yield Finding(where, differ)


def same_model(papers: Papers, one: str, other: str) -> bool:
    """Does the text say that two rows are one model, directly or through a third row?"""
    pairs = [{line.method, line.than} for line in lines(papers, {"same row"})]
    same = {one}
    for _ in pairs:
        same = same.union(*(pair for pair in pairs if same & pair))
    return other in same


def methods_without_a_row(papers: Papers) -> Iterator[Finding]:
    """A method that the text says is compared must have a row, and a row must be in the text."""
    for line in lines(papers, {"has a row"}):
        values = papers.values[papers.values.document == line.document]
        rows = set(values[values.artefact.isin(split(line.artefact))].method)
        named, excepted = set(split(line.method)), set(matching(line.than, list(rows)))
        missing, extra = sorted(named - rows), sorted(rows - named - excepted)
        if missing or extra:
            text, tables = (", ".join(names) or "none" for names in (missing, extra))
            found = f"in the text only: {text}; in the tables only: {tables}"
            yield Finding(source_of(line), found)


def rows_of_others(papers: Papers) -> Iterator[Finding]:
    """Rows "trained from scratch" that equal a leaderboard's entry in both numbers, to the digit."""
    norms = {"Linf": ("AA", "AA_inf"), "L2": ("AA_2",)}
    own = {line.document: line.place for line in lines(papers, {"trained from scratch"})}
    for (document, artefact, dataset, arch, method), row in papers.rows.iterrows():
        entries = papers.leaderboard[papers.leaderboard.dataset == dataset]
        for entry in entries.itertuples() if document in own else ():
            robust = [row[name] for name in norms[entry.threat] if pd.notna(row.get(name))]
            if row["NAT"] == entry.clean_acc and entry.autoattack_acc in robust:
                text = f"{entry.clean_acc} and {entry.autoattack_acc} are RobustBench's "
                text += f"{entry.entry} (its file says {entry.architecture})"
                where = f"{document}, {own[document]} / {artefact}, {dataset}, {arch}, {method}"
                yield Finding(where, text)


def settings_that_differ(papers: Papers) -> Iterator[Finding]:
    """Two places differ on one experiment: in one document, or in two that print the same rows."""
    settings = list(lines(papers, {"setting"}))
    for one, other in combinations(settings, 2):
        if one.metric != other.metric or one.value == other.value or not _overlap(one, other):
            continue
        scope = ", ".join([one.metric, *_common(one.dataset, other.dataset)])
        where = f"{one.document}, {one.place} / {other.document}, {other.place}: {scope}"
        text = f"{one.value} / {other.value}"
        if one.document != other.document:
            same = _identical_rows(one, other, papers)
            if not same or _says_both(settings, one, other):
                continue  # a document that says both is a finding already
            text += f", and {'1 row is' if same == 1 else f'{same} rows are'} the same to the digit"
        yield Finding(where, text)


def _says_both(settings: list[Any], one: Any, other: Any) -> bool:
    """Does one of the documents itself say what the other one says, of the same experiment?"""
    return any(
        (line.document, line.metric, line.value) == (mine.document, mine.metric, theirs.value)
        and _overlap(line, mine)
        and _overlap(line, theirs)
        for mine, theirs in ((one, other), (other, one))
        for line in settings
    )


def _common(one: str, other: str) -> list[str]:
    return [name for name in split(one) if name in split(other)]


def _overlap(one: Any, other: Any) -> bool:
    fields = [(getattr(one, name), getattr(other, name)) for name in _SCOPE]
    return all(not a or not b or _common(a, b) for a, b in fields)


def _identical_rows(one: Any, other: Any, papers: Papers) -> int:
    """How many rows that both settings are about are printed in both documents with equal numbers."""
    wanted = [(place, getattr(line, n)) for line in (one, other) for place, n in enumerate(_SCOPE)]
    count = 0
    for row, tables in papers.by_row.items():
        if all(matching(names, [row[place]]) for place, names in wanted):
            mine, theirs = (
                [numbers for table, numbers in tables.items() if table.split()[0] == document]
                for document in (one.document, other.document)
            )
            pairs = product(mine, theirs)
            count += any(len(a.keys() & b.keys()) > 1 and not differing(a, b) for a, b in pairs)
    return count
