import copy

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from harness.plan import Plan
from harness.records import Record
from harness.statistics import wilson
from harness.tables import cells, latex, markdown, published

GOLDEN = ROOT / "tests" / "golden"


def made_up(plan, artefact):
    """Records whose accuracy is set by the run's place in the table: a table with known numbers."""
    records = {}
    for place, run in enumerate(artefact.runs):
        records[run] = {}
        for number, probe in enumerate(plan.evaluations[run].probes):
            correct = np.arange(60) < 50 - 3 * place - 2 * number
            records[run][probe.id] = Record(correct, correct.astype(np.int16), 1, 1, 1, 1)
    return records


@pytest.fixture(scope="module")
def table(plan):
    grid = copy.deepcopy(plan.grid)
    entry = grid["artefacts"]["cvpr23_table1a"]
    entry["methods"] = ["nt", "at", "trades6", "generalist_d_nt_linf@released"]
    entry["columns"] = ["NAT", "PGD20"]
    grid["artefacts"] = {"cvpr23_table1a": entry}
    small = Plan(grid, plan.scale, "ci")
    artefact = small.artefact("cvpr23_table1a")
    return artefact, cells(artefact, made_up(small, artefact), small)


def test_ours_beside_the_published(table):
    _, found = table
    row = found[(found.method == "at") & (found.column == "NAT")].iloc[0]
    assert row.published == 84.32
    assert row.difference == round(row.ours - 84.32, 2)
    assert row.n == 60
    assert row.low < row.ours < row.high
    assert row.runs.startswith("digits-tiny-at-s0-")


def test_the_best_two_are_marked(table):
    _, found = table
    for _, column in found.groupby("column"):
        ranked = column.sort_values("ours", ascending=False)
        assert list(ranked["mark"])[:3] == ["best", "second", ""]


@pytest.mark.parametrize(("view", "file"), [(markdown, "table.md"), (latex, "table.tex")])
def test_the_text_is_the_golden_one(table, view, file):
    artefact, found = table
    assert view(found, artefact, "a notice") == (GOLDEN / file).read_text()


def test_numbers_selected_on_test_data_carry_a_dagger(table):
    artefact, found = table
    text = markdown(found, artefact, "a notice")
    assert "†" in next(line for line in text.splitlines() if "as its code runs" in line)


def test_every_published_number_is_there():
    values = pd.read_csv(ROOT / "reports" / "published" / "values.csv")
    assert len(values) == 1298
    assert len(published("plusplus_table1")) == 180
    assert (
        not published("plusplus_table1")
        .duplicated(["dataset", "network", "method", "column"])
        .any()
    )


def test_wilson_against_known_values():
    # Newcombe 1998, Table I: 81 of 263 and 0 of 20, score method
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)
