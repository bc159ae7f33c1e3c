"""Numbers and comparisons in the papers' text against their tables: rules for `audit.py`.

A line of statements.csv becomes a statement like those of the claims (relations.py), which is judged on
the printed numbers. The rules know the relations, not the lines: a new line is judged like the others.
"""

from collections.abc import Collection, Iterator
from itertools import permutations
from typing import Any

from harness.core.errors import expected, unknown
from harness.papers.comparisons import QUANTITIES, Comparison, Every, Evidence, Number
from harness.papers.printed import Printed
from harness.papers.published import ROUNDING, Finding, Numbers, Papers, matching, split
from harness.papers.relations import Statement, tree
from harness.papers.verdicts import Verdict

# A relation of statements.csv -> the quantity that it says the number of.
EQUALITIES = {"=": "accuracy", "error =": "error", "best of these =": "best", "leads by": "lead"}
EQUALITIES |= {"cuts error by %": "error cut"}
COMPARISONS = {  # -> the relation and the quantity of a statement
    "higher than": ("better", "accuracy"),
    "lower than": ("better", "accuracy"),
    "above": ("above", "accuracy"),
    "only above": ("only", "accuracy"),
    "leads by more than": ("above", "lead"),
    "rank": ("equals", "rank"),
    "top two": ("at_most", "rank"),
}
OTHERS = {"same row", "has a row", "setting", "trained from scratch"}
_TEXTS = {"above": "{} {:.2f}", "leads by more than": "{} leads by {:.2f}"}
_TEXTS |= {"rank": "{} is number {:.0f}"}
_ALONE = ("accuracy", "error")  # quantities that need no rivals

Column = tuple[str, str, Numbers]  # place (artefact/data set/network), metric, numbers by method


def lines(papers: Papers, relations: Collection[str]) -> Iterator[Any]:
    """The lines of statements.csv that have one of these relations."""
    known = {*EQUALITIES, *COMPARISONS, *OTHERS}
    for line in papers.statements.itertuples():
        if line.relation not in known:
            raise unknown("relation", line.relation, known, "reports/published/statements.csv")
        if line.relation in relations:
            yield line


def source_of(line: Any) -> str:
    return f"{line.document}, {line.place}: {line.said}"


def columns(line: Any, papers: Papers) -> Iterator[Column]:
    """The printed columns that a line is about."""
    values = papers.values[papers.values.document == line.document]
    fields = {"artefact": line.artefact, "dataset": line.dataset}
    fields |= {"arch": line.network, "metric": line.metric}
    for name, wanted in fields.items():
        if wanted:
            values = values[values[name].isin(split(wanted))]
    if values.empty:
        raise _no_number(line, "none")
    for (artefact, dataset, arch, metric), part in values.groupby([*fields], sort=False):
        place = f"{line.document}_{artefact}/{dataset}/{arch}"
        yield place, str(metric), dict(zip(part.method, part.value, strict=True))


def _where(place: str, metric: str) -> str:
    return f"{metric} in {place.partition('_')[2].replace('/', ', ')}"


def _no_number(line: Any, found: str) -> Exception:
    remedy = "correct its line in reports/published/statements.csv"
    return expected(f"printed numbers behind '{source_of(line)}'", found, remedy)


def statement(line: Any, column: Column, method: str) -> Statement:
    """A line's statement about one method in one column."""
    place, metric, numbers = column
    relation, quantity = COMPARISONS.get(line.relation) or ("equals", EQUALITIES[line.relation])
    others = matching(line.than, list(numbers), without=method)
    entry: dict[str, Any] = {"columns": [metric], "than": others}
    if relation == "better":
        entry |= {"better": [method], "lower": line.relation == "lower than"}
    elif relation == "only":
        limits = zip(split(line.metric), split(line.value), strict=True)
        entry |= {"only": method, "above": dict(limits)}
    else:
        limit = 2 if line.relation == "top two" else line.value
        entry |= {"methods": [method], relation: limit, "quantity": quantity}
        entry["rivals"] = [] if quantity in _ALONE else others
        if relation == "equals":
            entry["tolerance"] = 0.51 * 10 ** -len(line.value.partition(".")[2])  # as rounded
    return Statement(entry, place)


def contradictions(line: Any, column: Column, printed: Printed) -> dict[Comparison, Evidence]:
    """The comparisons of a line that are false in a column."""
    methods = split(line.method) or matching(line.than, list(column[2]))[:1]
    trees = [tree(statement(line, column, method)) for method in methods]
    verdict = Verdict(Every(tuple(trees)), printed)
    for error in verdict.missing.values():
        raise _no_number(line, f"{error.reason} {error.name}")
    return {c: found for c, found in verdict.found.items() if verdict.truth[c] is False}


def numbers_in_prose(papers: Papers) -> Iterator[Finding]:
    """A number in the text must be the table's, as rounded there."""
    printed = Printed(papers.values)
    for line in lines(papers, EQUALITIES):
        for column in columns(line, papers):
            place, metric, numbers = column
            for evidence in contradictions(line, column, printed).values():
                text = f"said {line.value}; {_where(place, metric)} gives {evidence.one:.2f}"
                yield Finding(source_of(line), text + _whose(line, numbers))


def _whose(line: Any, numbers: Numbers) -> str:
    """Whose number it would be: another row's, or the difference of two rows."""

    def fits(number: float) -> bool:
        return abs(number - float(line.value)) <= ROUNDING

    quantity = EQUALITIES[line.relation]
    alone = numbers if quantity in _ALONE else {}
    rows = [method for method, own in alone.items() if fits(QUANTITIES[quantity](own, []))]
    if rows:
        return f"; it is the number of {', '.join(rows)}"
    pairs = [p for p in permutations(numbers, 2) if fits(numbers[p[0]] - numbers[p[1]])]
    return f"; it is {pairs[0][0]} minus {pairs[0][1]}" if len(pairs) == 1 else ""


def comparisons_in_prose(papers: Papers) -> Iterator[Finding]:
    """What the text calls best, higher or the only one must be so in the tables; so must bold print."""
    printed = Printed(papers.values)
    for line in lines(papers, COMPARISONS):
        judged = list(columns(line, papers))
        if line.relation == "only above":  # all columns of a place at once
            judged = list({column[0]: column for column in judged}.values())
            against = [text for column in judged for text in _not_only(line, column, printed)]
        else:
            texts = [(c, _text(line, c[2], contradictions(line, c, printed))) for c in judged]
            against = [f"{_where(*c[:2])}: {text}" for c, text in texts if text]
        if against:
            share = f"not in {len(against)} of {len(judged)} columns: " if len(judged) > 1 else ""
            yield Finding(source_of(line), share + "; ".join(against))


def _text(line: Any, numbers: Numbers, against: dict[Comparison, Evidence]) -> str:
    """What contradicts a line in one column."""
    if not against:
        return ""
    if text := _TEXTS.get(line.relation):
        return "; ".join(text.format(c.one.method, found.one) for c, found in against.items())
    row = {name: f"{name} {number:.2f}" for name, number in numbers.items()}
    if line.relation == "top two":
        top = sorted(numbers, key=lambda name: -numbers[name])[:2]
        others = ", ".join(row[comparison.one.method] for comparison in against)
        return f"{others} is not among {', '.join(row[name] for name in top)}"
    rivals: dict[str, list[str]] = {}
    for comparison in against:
        assert isinstance(comparison.other, Number)
        rivals.setdefault(comparison.one.method, []).append(row[comparison.other.method])
    side = "below" if line.relation == "lower than" else "above"
    return "; ".join(f"{row[one]}, not {side} {', '.join(some)}" for one, some in rivals.items())


def _not_only(line: Any, column: Column, printed: Printed) -> list[str]:
    """The method is not above every limit, or another one is above all of them."""
    stated = statement(line, column, line.method)
    every = tree(stated)
    assert isinstance(every, Every)
    false = [Verdict(part, printed).true is False for part in every.parts]
    own = len(stated.entry["above"])
    others = zip(stated.entry["than"], false[own:], strict=True)  # false: above all limits
    itself = [f"{line.method} itself is not"] if any(false[:own]) else []
    return itself + [f"{name} is, too" for name, above in others if above]
