"""What the papers print, as files: reports/published/. Torch-free.

values.csv: every number of their tables. statements.csv: what their prose, captions and marks say of
results and settings, transcribed by hand in few words (the arXiv version repeats CVPR's prose number
for number and has no rows of its own). Of Zipper's Table 8 only six numbers of its TRADES row are
legible, without their column heads: they stand in the columns in which Zipper's Table 1a prints the
same numbers in the same order. robustbench.csv: entries of RobustBench's leaderboards, with
the file each was read from.

In statements.csv `;` separates several of a kind, each of which is meant; an empty field means all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.core.config import ROOT

PUBLISHED = ROOT / "reports" / "published"
ROW = ["document", "artefact", "dataset", "arch", "method"]
ROUNDING = 0.0051  # two printed numbers that differ by less may be the same one
SAME = {"PGD20_inf": "PGD20", "AA_inf": "AA", "APGD": "APGD_ce"}  # other names of one number


@dataclass(frozen=True)
class Finding:
    where: str
    found: str


@dataclass(frozen=True)
class Papers:
    values: pd.DataFrame
    statements: pd.DataFrame
    leaderboard: pd.DataFrame

    @classmethod
    def read(cls, folder: Path = PUBLISHED) -> Papers:
        statements = pd.read_csv(folder / "statements.csv", dtype=str, keep_default_na=False)
        names = [*statements.columns.drop("document")]
        each = statements.assign(document=statements.document.str.split(";")).explode("document")
        return cls(
            pd.read_csv(folder / "values.csv"),
            each[["document", *names]].reset_index(drop=True),
            pd.read_csv(folder / "robustbench.csv"),
        )

    @property
    def rows(self) -> pd.DataFrame:
        """One line per row of a printed table, its metrics as columns."""
        return self.values.pivot_table(index=ROW, columns="metric", values="value")

    @property
    def natural(self) -> pd.Series:
        """Natural accuracy by document, data set, network and method."""
        names = ["document", "dataset", "arch", "method"]
        return self.values[self.values.metric == "NAT"].groupby(names).value.mean()

    @property
    def by_row(self) -> dict[tuple, dict[str, dict[str, float]]]:
        """(data set, network, method) -> the printed tables that have this row -> its numbers."""
        groups: dict[tuple, dict[str, dict[str, float]]] = {}
        named = self.values.assign(metric=self.values.metric.replace(SAME))
        for row in named.itertuples():
            tables = groups.setdefault((row.dataset, row.arch, row.method), {})
            numbers = tables.setdefault(f"{row.document} {row.artefact}", {})
            numbers[str(row.metric)] = float(row.value)
        return groups
