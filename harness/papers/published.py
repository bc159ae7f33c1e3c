"""What the papers print, as files: reports/published/. Torch-free.

values.csv: every number of their tables. statements.csv: what their prose, captions and marks say of
results and settings, transcribed by hand in few words (the arXiv version repeats CVPR's prose number
for number and has no rows of its own). Of Zipper's Table 8 only six numbers of its TRADES row are
legible, without their column heads: they are in the columns in which Zipper's Table 1a prints the same
numbers in the same order. robustbench.csv: entries of RobustBench's leaderboards, with the file that
each was read from.

In statements.csv `;` separates several names; all of them are meant. An empty field means all.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.config import ROOT
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

PUBLISHED = ROOT / "reports" / "published"
ROW = ["document", "artefact", "dataset", "arch", "method"]
KEYS, NUMBERS = ["dataset", "network", "method", "column"], ["published", "published_std"]
_OURS = {"arch": "network", "metric": "column", "value": NUMBERS[0], "std": NUMBERS[1]}
ROUNDING = 0.0051  # two printed numbers that differ by less may be the same one
SAME = {"PGD20_inf": "PGD20", "AA_inf": "AA", "APGD": "APGD_ce"}  # other names of one number

Numbers = dict[str, float]  # of one printed row by metric, or of one printed column by method


@dataclass(frozen=True)
class Finding:
    """A contradiction or an oddity in the papers."""

    where: str
    found: str


@dataclass(frozen=True)
class Papers:
    """The three files; statements.csv with one line per document."""

    values: pd.DataFrame
    statements: pd.DataFrame
    leaderboard: pd.DataFrame

    @classmethod
    def read(cls) -> Papers:
        import pandas as pd  # here: planning names claims and reads no number

        statements = pd.read_csv(PUBLISHED / "statements.csv", dtype=str, keep_default_na=False)
        each = statements.assign(document=statements.document.str.split(";"))
        each = each.explode("document", ignore_index=True)
        values, leaderboard = (pd.read_csv(PUBLISHED / f"{n}.csv") for n in ("values", "robustbench"))
        return cls(values, each, leaderboard)

    @property
    def rows(self) -> pd.DataFrame:
        """One line per row of a printed table, its metrics as columns."""
        return self.values.pivot_table(index=ROW, columns="metric", values="value")

    @property
    def by_row(self) -> dict[tuple[str, str, str], dict[str, Numbers]]:
        """(data set, network, method) -> the printed tables that have this row -> its numbers."""
        groups: dict[tuple[str, str, str], dict[str, Numbers]] = {}
        named = self.values.assign(metric=self.values.metric.replace(SAME))
        for row in named.itertuples():
            tables = groups.setdefault((row.dataset, row.arch, row.method), {})
            numbers = tables.setdefault(f"{row.document} {row.artefact}", {})
            numbers[str(row.metric)] = float(row.value)
        return groups


def split(text: str) -> list[str]:
    return [part for part in text.split(";") if part]


def matching(patterns: str, names: list[str], without: str = "") -> list[str]:
    """The names that patterns such as `*;-generalist*` match, in their own order."""
    wanted = [part for part in split(patterns) if not part.startswith("-")] or ["*"]
    excluded = [part[1:] for part in split(patterns) if part.startswith("-")]
    kept = {name for pattern in wanted for name in fnmatch.filter(names, pattern)}
    kept -= {without, *(name for pattern in excluded for name in fnmatch.filter(names, pattern))}
    return [name for name in names if name in kept]


def differing(one: Numbers, other: Numbers) -> str:
    """The numbers that two rows have of the same metric and that differ, side by side."""
    shared = {name: (one[name], other[name]) for name in one if name in other}
    pairs = {name: (a, b) for name, (a, b) in shared.items() if abs(a - b) > ROUNDING}
    text = ", ".join(f"{name} {a:.2f} / {b:.2f}" for name, (a, b) in pairs.items())
    mine, theirs = ([pair[i] for pair in pairs.values()] for i in (0, 1))
    permuted = len(pairs) > 1 and sorted(mine) == sorted(theirs)
    return text + " (the same numbers, permuted)" * permuted


def printed_table(values: pd.DataFrame, name: str) -> pd.DataFrame:
    """One printed table, such as `cvpr23_table1a`, with our names of the fields."""
    document, _, artefact = name.partition("_")
    own = values[(values.document == document) & (values.artefact == artefact)]
    return own.rename(columns=_OURS)


def published(artefact: Artefact, plan: Plan) -> pd.DataFrame:
    """The papers' numbers for an artefact, by our keys."""
    return printed(artefact.published, artefact.published_rows, artefact.columns, plan)


def printed(
    sources: str | Iterable[str], rows: Mapping[str, str], columns: Iterable[str], plan: Plan
) -> pd.DataFrame:
    """Some columns of a printed table, or of several, by our keys; columns may have other names there.

    `rows` names the printed row beside one of ours; several of ours may have the same one. A row that
    is not in it has the printed row of its own name. Of several tables the first with a number counts.
    """
    import pandas as pd  # here, as above

    everything, found = pd.read_csv(PUBLISHED / "values.csv"), []
    for source in [sources] if isinstance(sources, str) else sources:
        own = printed_table(everything, source)
        found.append(own[~own.method.isin(rows)])
        found += [own[own.method == theirs].assign(method=ours) for ours, theirs in rows.items()]
    values = pd.concat(found)
    parts = []
    for column in columns:
        entry = plan.columns.column(column)
        own = values[values.column == entry.get("published", column)].assign(column=column)
        suffix = f"-{entry['corrupted']}" if entry.get("published") and "corrupted" in entry else ""
        own = own[own.dataset.str.endswith(suffix)] if suffix else own
        parts.append(own.assign(dataset=own.dataset.str.removesuffix(suffix)))
    return pd.concat(parts)[[*KEYS, *NUMBERS]].drop_duplicates(KEYS)
