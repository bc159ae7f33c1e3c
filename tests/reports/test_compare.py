import sys

import numpy as np
import pandas as pd
import pytest
from conftest import ARTEFACT, METHODS

from harness.core.errors import UserError
from harness.grid.plan import Plan
from harness.reports.compare import across, agreement, differences, main


@pytest.fixture(scope="module")
def plan(grid):
    return Plan.read("ci", grid)


@pytest.fixture(scope="module")
def table(built):
    return pd.read_csv(built / "reports" / "ci" / "tables" / f"{ARTEFACT}.csv")


@pytest.fixture(scope="module")
def against_all(plan, built):
    return differences(plan, ARTEFACT, "trades6", [], built / "results")


def test_differences_are_those_of_the_table(table, against_all):
    ours = table.set_index(["method", "column"]).ours
    assert set(against_all.against) == set(METHODS) - {"trades6"}
    assert len(against_all) == len(table) - len(table[table.method == "trades6"])
    for line in against_all.itertuples():
        assert line.one == pytest.approx(ours["trades6", line.column], abs=0.01)
        assert line.other == pytest.approx(ours[line.against, line.column], abs=0.01)
        assert line.difference == pytest.approx(line.one - line.other, abs=0.02)
        assert line.low <= line.difference <= line.high
        assert (line.p < 0.05) == (line.low > 0 or line.high < 0) or 0.01 < line.p < 0.15


def test_a_comparison_turned_round_changes_its_sign(plan, built, against_all):
    forth = against_all[against_all.against == "at"].set_index("column")
    back = differences(plan, ARTEFACT, "at", ["trades6"], built / "results").set_index("column")
    assert (forth.difference == -back.difference).all()
    assert (forth.low == -back.high).all()
    assert (forth.p == back.p).all()


def test_a_row_that_is_not_there(plan, built):
    with pytest.raises(UserError, match="did you mean 'trades6'"):
        differences(plan, ARTEFACT, "at", ["trades66"], built / "results")


def test_our_order_and_the_papers(plan, built, table):
    found = agreement(plan, ARTEFACT, built / "results").set_index("column")
    own = table[(table.column == "NAT") & table.published.notna()]
    ours, theirs = (np.sign(np.subtract.outer(v, v)) for v in own[["ours", "published"]].values.T)
    tau = (ours * theirs).sum() / np.sqrt(np.abs(ours).sum() * np.abs(theirs).sum())
    assert found.tau["NAT"] == pytest.approx(tau, abs=0.005)
    assert found.rows["NAT"] == len(own)
    with pytest.raises(UserError, match="name a row"):
        agreement(plan, "cvpr23_fig3", built / "results")


def test_from_the_shell(grid, built, monkeypatch, capsys):
    words = ["compare", "--scale", "ci", "--grid", str(grid), "--results", str(built / "results")]
    monkeypatch.setattr(sys, "argv", [*words, ARTEFACT, "trades6", "at"])
    main()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["high", "p", "n", "seeds"]
    assert [line.split()[3] for line in lines][:2] == ["NAT", "PGD20"]


def test_a_row_against_itself_at_another_scale(plan, built):
    """There, AT is trained as NT is, so what differs is what differs between the two here."""
    methods = plan.grid["methods"]
    grid = {**plan.grid, "methods": {**methods, "at": methods["nt"]}}
    there = Plan(grid, plan.scale, "there")
    found = across(plan, there, ARTEFACT, ["at", "nt"], built / "results")
    assert set(found.against) == {"at at there", "nt at there"}
    rows = {name: found[found.against == f"{name} at there"] for name in ("at", "nt")}
    assert (rows["nt"].difference == 0).all()
    between = differences(plan, ARTEFACT, "at", ["nt"], built / "results")
    columns = ["column", "one", "other", "difference", "low", "high", "p"]
    pd.testing.assert_frame_equal(
        rows["at"][columns].reset_index(drop=True), between[columns].reset_index(drop=True)
    )
