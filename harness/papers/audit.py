"""Checks the published numbers against themselves and the text: `generalist-bench audit`.

Writes reports/published/audit.md. Rules find the contradictions, so a new one in values.csv or
statements.csv would be found too. They do not say who is wrong, and they allow for rounding.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pandas as pd

from harness.core.config import INSTALLED
from harness.core.files import in_markdown, write_whole
from harness.papers import experiments, statements
from harness.papers.published import PUBLISHED, ROUNDING, ROW, Finding, Papers, differing

COMPONENTS = ["APGD_ce", "APGD_t", "FAB_t", "Square"]
_FAR = 8.0  # in median absolute deviations
_LEAST = 3.0  # points


def _place(index: tuple) -> str:
    document, artefact, *rest = index
    return ", ".join([f"{document} {artefact}", *rest])


def aa_above_a_component(papers: Papers) -> Iterator[Finding]:
    """AutoAttack is what survives all its components; in one evaluation it cannot exceed any."""
    for index, row in papers.rows.iterrows():
        above = [name for name in COMPONENTS if row.get("AA", 0) > row.get(name, float("inf"))]
        if above:
            parts = ", ".join(f"{name} {row[name]:.2f}" for name in above)
            yield Finding(_place(index), f"AA {row['AA']:.2f} above {parts}")


def union_is_not_the_mean(papers: Papers) -> Iterator[Finding]:
    """Generalist++ defines Union as the mean of AA_inf and AA_2."""
    for index, row in papers.rows.dropna(subset=["Union"]).iterrows():
        mean = (row["AA_inf"] + row["AA_2"]) / 2
        if abs(row["Union"] - mean) > ROUNDING:
            yield Finding(_place(index), f"Union {row['Union']:.2f}, the mean is {mean:.3f}")


def rows_that_differ(papers: Papers) -> Iterator[Finding]:
    """The same model, printed twice, with other numbers; permuted columns are said to be so."""
    for key, tables in papers.by_row.items():
        for (one, mine), (other, theirs) in combinations(tables.items(), 2):
            differ = differing(mine, theirs)
            if differ:
                yield Finding(f"{one} / {other}: {', '.join(key)}", differ)


def outliers(papers: Papers) -> Iterator[Finding]:
    """Gaps far from those of the table's other rows: PGD to AutoAttack, one network to another."""
    for where, table in papers.rows.groupby(ROW[:-1]):
        for pair in (("PGD20", "AA"), ("PGD20_inf", "AA_inf"), ("PGD20_2", "AA_2")):
            if set(pair) <= set(table):
                yield from _far_apart(where, table.droplevel(ROW[:-1]), pair)
    for (*where, metric), part in papers.values.groupby([*ROW[:3], "metric"]):
        archs = part.pivot_table(index="method", columns="arch", values="value").dropna()
        if archs.shape[1] == 2:
            yield from _far_apart(where, archs, archs.columns, about=f"{metric}: ")


def far_out_of_distribution(papers: Papers) -> Iterator[Finding]:
    """Natural accuracy minus that on -C or -P images of the same data set, far from the other rows."""
    values = papers.values
    keys = ["document", "dataset", "arch", "method"]
    natural = values[values.metric == "NAT"].groupby(keys).value.mean()
    for where, part in values[values.dataset.str.contains("-")].groupby(ROW[:-1]):
        document, _, dataset, arch = where
        known = natural.get((document, dataset.rpartition("-")[0], arch), pd.Series(dtype=float))
        both = {"NAT": known, dataset: part.set_index("method").value}
        yield from _far_apart(where, pd.DataFrame(both).dropna(), ("NAT", dataset))


def _far_apart(
    where: Iterable[str], table: pd.DataFrame, pair: Iterable[str], about: str = ""
) -> Iterator[Finding]:
    """Methods whose gap between two columns is far from the other methods' gaps."""
    one, other = pair
    gaps = (table[one] - table[other]).dropna()
    median = gaps.median()
    off = (gaps - median).abs()
    for method in off[off > max(_FAR * off.median(), _LEAST)].index if len(gaps) >= 5 else ():
        text = f"{one} {table.loc[method, one]:.2f}, {other} {table.loc[method, other]:.2f}, "
        text += f"gap {gaps[method]:.2f}; the median gap is {median:.2f}"
        yield Finding(_place((*where, method)), about + text)


def rows_that_share_numbers(papers: Papers) -> Iterator[Finding]:
    """Two methods on the same data set with the same network have an equal number in a column."""
    shared: dict[tuple, tuple[dict[str, float], set[str]]] = {}  # -> equal numbers, tables
    rows = [(*key, *row) for key, tables in papers.by_row.items() for row in tables.items()]
    for (*place, one, table, mine), (*elsewhere, other, second, theirs) in combinations(rows, 2):
        equal = {m: n for m, n in mine.items() if n and theirs.get(m) == n}
        if place == elsewhere and one != other and equal:
            numbers, tables = shared.setdefault((*place, *sorted((one, other))), ({}, set()))
            numbers.update(equal)
            tables.update((table, second))
    most_first = sorted(shared.items(), key=lambda pair: -len(pair[1][0]))
    for (*place, one, other), (numbers, names) in most_first:
        where = f"{' / '.join(sorted(names))}: {', '.join(place)}, {one} and {other}"
        text = ", ".join(f"{metric} {number:.2f}" for metric, number in numbers.items())
        known = experiments.same_model(papers, one, other)
        yield Finding(where, text + "; the text says that they are one model" * known)
    yield from _by_chance(papers)


def _by_chance(papers: Papers) -> Iterator[Finding]:
    """Equal pairs within one column, and how many to expect by chance: from the pairs less than a point
    apart, above or below, a window of 200 steps of 0.01, of which equality is one."""
    equal = close = 0
    for _, column in papers.values[papers.values.value > 0].groupby([*ROW[:-1], "metric"]):
        gaps = [abs(one - other) for one, other in combinations(column.value, 2)]
        equal += sum(gap < ROUNDING for gap in gaps)
        close += sum(ROUNDING <= gap < 1 for gap in gaps)
    if equal:
        text = f"{equal} pairs of rows are equal in a column; about {close / 200:.1f} would be "
        yield Finding("all columns of all tables", text + "by chance")


RULES: dict[str, Callable[[Papers], Iterator[Finding]]] = {
    "AutoAttack above one of its components": aa_above_a_component,
    "Union that is not the mean it is defined as": union_is_not_the_mean,
    "The same row, other numbers": rows_that_differ,
    "Far from the other rows": outliers,
    "Far from the other rows out of distribution": far_out_of_distribution,
    "Different methods, the same numbers": rows_that_share_numbers,
    "A number in the text that the table does not have": statements.numbers_in_prose,
    "A comparison in the text that the tables contradict": statements.comparisons_in_prose,
    "One experiment, two settings": experiments.settings_that_differ,
    "Rows that are one model, other numbers": experiments.rows_said_to_be_one,
    "Methods in the text, rows in the tables": experiments.methods_without_a_row,
    "Rows that are somebody else's": experiments.rows_of_others,
}


def audit(papers: Papers) -> str:
    lines = [
        "# Audit of the published numbers",
        "",
        f"Recomputed from `values.csv` ({len(papers.values)} numbers), `statements.csv` "
        f"({len(papers.statements)} statements of the",
        f"texts) and `robustbench.csv` ({len(papers.leaderboard)} entries) by the rules of "
        "`harness/papers/audit.py`",
        "(`generalist-bench audit`). A finding is a contradiction or an oddity, not a verdict.",
    ]
    for title, rule in RULES.items():
        findings = list(rule(papers))
        lines += ["", f"## {title} ({len(findings)})", "", f"{rule.__doc__}", ""]
        lines += ["| where | found |", "|---|---|"]
        lines += [f"| {in_markdown(one.where)} | {in_markdown(one.found)} |" for one in findings]
    return "\n".join(lines) + "\n"


def main() -> None:
    argparse.ArgumentParser(description="Check the published numbers.").parse_args()
    folder = Path("reports", "published") if INSTALLED else PUBLISHED
    place = folder / "audit.md"
    write_whole(place, audit(Papers.read()))
    print(f"the audit is at {place}")
