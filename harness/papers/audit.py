"""The published numbers against themselves and against the prose: `python -m harness audit`.

Writes reports/published/audit.md. Found by rules, not by a list: a new contradiction in the published
values.csv or a new line of statements.csv would be found too. None of them says who is wrong;
rounding is allowed for everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pandas as pd

from harness.core.files import write_whole
from harness.papers.experiments import (
    methods_without_a_row,
    rows_of_others,
    rows_said_to_be_one,
    rows_that_share_numbers,
    settings_that_differ,
)
from harness.papers.published import PUBLISHED, ROUNDING, ROW, Finding, Papers
from harness.papers.statements import comparisons_in_prose, numbers_in_prose

COMPONENTS = ["APGD_ce", "APGD_t", "FAB_t", "Square"]
_FAR = 8.0  # in median absolute deviations
_LEAST = 3.0  # points


def _place(index: tuple) -> str:
    document, artefact, dataset, arch, method = index
    return f"{document} {artefact}, {dataset}, {arch}, {method}"


def aa_above_a_component(papers: Papers) -> list[Finding]:
    """AutoAttack is what survives all its components; in one evaluation it cannot exceed any."""
    found = []
    for index, row in papers.rows.iterrows():
        above = [name for name in COMPONENTS if row.get("AA", 0) > row.get(name, float("inf"))]
        if above:
            parts = ", ".join(f"{name} {row[name]:.2f}" for name in above)
            found.append(Finding(_place(index), f"AA {row['AA']:.2f} above {parts}"))
    return found


def union_is_not_the_mean(papers: Papers) -> list[Finding]:
    """Generalist++ defines Union as the mean of AA_inf and AA_2."""
    found = []
    for index, row in papers.rows.dropna(subset=["Union"]).iterrows():
        mean = (row["AA_inf"] + row["AA_2"]) / 2
        if abs(row["Union"] - mean) > ROUNDING:
            text = f"Union {row['Union']:.2f}, the mean is {mean:.3f}"
            found.append(Finding(_place(index), text))
    return found


def rows_that_differ(papers: Papers) -> list[Finding]:
    """The same model, printed twice, with other numbers; permuted columns are said to be so."""
    found = []
    for (dataset, arch, method), tables in papers.by_row.items():
        for one, other in combinations(tables, 2):
            shared = [name for name in tables[one] if name in tables[other]]
            differ = [n for n in shared if abs(tables[one][n] - tables[other][n]) > ROUNDING]
            if not differ:
                continue
            permuted = sorted(tables[one][n] for n in differ) == sorted(
                tables[other][n] for n in differ
            )
            text = ", ".join(f"{n} {tables[one][n]:.2f} / {tables[other][n]:.2f}" for n in differ)
            text += " (the same numbers, permuted)" if permuted and len(differ) > 1 else ""
            found.append(Finding(f"{one} / {other}: {dataset}, {arch}, {method}", text))
    return found


def outliers(papers: Papers) -> list[Finding]:
    """Gaps far from those of the table's other rows: PGD to AutoAttack, one network to another."""
    found = []
    for _, table in papers.rows.groupby(["document", "artefact", "dataset", "arch"]):
        for pair in (("PGD20", "AA"), ("PGD20_inf", "AA_inf"), ("PGD20_2", "AA_2")):
            if set(pair) <= set(table):
                found += [Finding(_place(i), text) for i, text in _far_apart(table, *pair)]
    for where, table in papers.values.groupby(["document", "artefact", "dataset"]):
        for metric, part in table.groupby("metric"):
            archs = part.pivot_table(index="method", columns="arch", values="value").dropna()
            if archs.shape[1] == 2:
                for method, text in _far_apart(archs, *archs.columns):
                    place = f"{where[0]} {where[1]}, {where[2]}, {method}"
                    found.append(Finding(place, f"{metric}: {text}"))
    return found


def far_out_of_distribution(papers: Papers) -> list[Finding]:
    """Natural accuracy minus that on -C or -P images of the same data set, far from the other rows."""
    found, values = [], papers.values
    corrupted = values[values.dataset.str.contains("-")]
    for (document, artefact, dataset, arch), part in corrupted.groupby(ROW[:-1]):
        own = part.set_index("method").value
        name = dataset.rpartition("-")[0]
        known = papers.natural.get((document, name, arch), pd.Series(dtype=float))
        table = pd.DataFrame({"NAT": known, dataset: own}).dropna()
        for method, text in _far_apart(table, "NAT", dataset):
            found.append(Finding(_place((document, artefact, dataset, arch, method)), text))
    return found


def _far_apart(table: pd.DataFrame, one: str, other: str) -> list[tuple[Any, str]]:
    """Rows whose gap between two columns lies far from the other rows' gaps."""
    gaps = (table[one] - table[other]).dropna()
    if len(gaps) < 5:
        return []
    off = (gaps - gaps.median()).abs()
    return [
        (
            i,
            f"{one} {table.loc[i, one]:.2f}, {other} {table.loc[i, other]:.2f}, gap {gaps[i]:.2f}; "
            f"the median gap is {gaps.median():.2f}",
        )
        for i in off[off > max(_FAR * off.median(), _LEAST)].index
    ]


RULES: dict[str, Callable[[Papers], list[Finding]]] = {
    "AutoAttack above one of its components": aa_above_a_component,
    "Union that is not the mean it is defined as": union_is_not_the_mean,
    "The same row, other numbers": rows_that_differ,
    "Far from the other rows": outliers,
    "Far from the other rows out of distribution": far_out_of_distribution,
    "Different methods, the same numbers": rows_that_share_numbers,
    "A number in the text that the table does not have": numbers_in_prose,
    "A comparison in the text that the tables contradict": comparisons_in_prose,
    "One experiment, two settings": settings_that_differ,
    "Rows that are one model, other numbers": rows_said_to_be_one,
    "Methods in the text, rows in the tables": methods_without_a_row,
    "Rows that are somebody else's": rows_of_others,
}


def audit(papers: Papers) -> str:
    lines = [
        "# Audit of the published numbers",
        "",
        f"Recomputed from `values.csv` ({len(papers.values)} numbers), `statements.csv` "
        f"({len(papers.statements)} statements of the",
        f"texts) and `robustbench.csv` ({len(papers.leaderboard)} entries) by the rules of "
        "`harness/papers/audit.py`",
        "(`python -m harness audit`). A finding is a contradiction or an oddity, not a verdict.",
    ]
    for title, rule in RULES.items():
        findings = rule(papers)
        lines += ["", f"## {title} ({len(findings)})", "", f"{(rule.__doc__ or '').strip()}", ""]
        lines += ["| where | found |", "|---|---|"]
        lines += [f"| {finding.where} | {finding.found} |" for finding in findings]
    return "\n".join(lines) + "\n"


def main() -> None:
    write_whole(PUBLISHED / "audit.md", audit(Papers.read()))
    print(f"the audit is at {PUBLISHED / 'audit.md'}")
