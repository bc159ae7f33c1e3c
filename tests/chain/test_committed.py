"""The committed tables of lite follow from the committed records, number by number."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, records_in

from harness.core.paths import read_description
from harness.core.statistics import interval
from harness.evaluation.records import value
from harness.grid.columns import CASCADE, COMPONENTWISE, Formula
from harness.grid.plan import Plan

RESULTS, TABLES = ROOT / "results", ROOT / "reports" / "lite" / "tables"
LITE = Plan.read("lite")


@cache
def records(run):
    """All that the record files of a run hold; they say which weights they are of."""
    found = {}
    for path in RESULTS.glob(f"records/{run}-*.npz"):
        own, about = records_in(path)
        assert about["run"] == run
        assert about["weights"] == read_description(RESULTS, run)["sha256"]
        found |= own
    return found


def formula(name, row, runs):
    """How a column was computed; of AutoAttack's two procedures by the one that was recorded.

    Tables of 10fe103 could mix the two, in a mean of l_inf and l_2.
    """
    entry = LITE.columns.column(name, row.protocol)
    for op in {"all", "mean"} & entry.keys():
        return Formula(op, tuple(formula(part, row, runs) for part in entry[op]))
    for autoattack in (COMPONENTWISE, CASCADE):
        own = LITE.columns.resolved(name, row.measured_on, row.protocol, autoattack).formula
        if all(probe in records(run) for run in runs for probe in own.probes):
            return own
    raise AssertionError(f"no record behind {name} of {row.runs}")


@pytest.mark.parametrize("name", sorted(path.stem for path in TABLES.glob("*.csv")))
def test_a_committed_table_follows_from_the_records(name):
    for row in pd.read_csv(TABLES / f"{name}.csv").dropna(subset="n").itertuples():
        runs = row.runs.split()
        own = formula(row.column, row, runs)
        values = np.stack([value(own, records(run)) for run in runs])
        low, high = (round(100 * end, 2) for end in interval(values))
        calls = max(records(run)[probe].backward for run in runs for probe in own.probes)
        ours = round(float(np.mean([100 * float(flags.mean()) for flags in values])), 2)
        found = (ours, low, high, values.shape[1], calls)
        assert found == (row.ours, row.low, row.high, row.n, row.gradient_calls), row
