import sys

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from harness.compare import agreement, differences, main
from harness.errors import UserError
from harness.plan import Plan

RESULTS = ROOT / "results"


@pytest.fixture(scope="module")
def lite():
    return Plan.read("lite")


@pytest.fixture(scope="module")
def against_all(lite):
    return differences(lite, "plusplus_table1", "fat", [], RESULTS)


def test_differences_are_those_of_the_committed_table(lite, against_all):
    table = pd.read_csv(ROOT / "reports" / "lite" / "tables" / "plusplus_table1.csv")
    ours = table.set_index(["method", "column"]).ours
    rows = [row.method for row in lite.artefact("plusplus_table1").rows]
    assert set(against_all.against) == set(rows) - {"fat"}
    assert len(against_all) == len(table) - len(table[table.method == "fat"])
    for line in against_all.itertuples():
        assert line.one == pytest.approx(ours["fat", line.column], abs=0.01)
        assert line.other == pytest.approx(ours[line.against, line.column], abs=0.01)
        assert line.difference == pytest.approx(line.one - line.other, abs=0.02)
        assert line.low < line.difference < line.high
        assert (line.p < 0.05) == (line.low > 0 or line.high < 0) or 0.02 < line.p < 0.1


def test_a_comparison_turned_round_changes_its_sign(lite, against_all):
    forth = against_all[against_all.against == "at"].set_index("column")
    back = differences(lite, "plusplus_table1", "at", ["fat"], RESULTS).set_index("column")
    assert (forth.difference == -back.difference).all()
    assert (forth.low == -back.high).all()
    assert (forth.p == back.p).all()


def test_a_row_that_is_not_there(lite):
    with pytest.raises(UserError, match="did you mean 'fat'"):
        differences(lite, "plusplus_table1", "at", ["fatt"], RESULTS)


def test_our_order_and_the_papers(lite):
    found = agreement(lite, "plusplus_table1", RESULTS).set_index("column")
    table = pd.read_csv(ROOT / "reports" / "lite" / "tables" / "plusplus_table1.csv")
    own = table[(table.column == "AA_inf") & table.published.notna()]
    ours, theirs = (np.sign(np.subtract.outer(v, v)) for v in own[["ours", "published"]].values.T)
    tau = (ours * theirs).sum() / np.sqrt(np.abs(ours).sum() * np.abs(theirs).sum())
    assert found.tau["AA_inf"] == pytest.approx(tau, abs=0.005)
    assert found.rows["AA_inf"] == len(own)
    assert "true_union" not in found.index  # the papers do not print it
    with pytest.raises(UserError, match="name a row"):
        agreement(lite, "cvpr23_fig3", RESULTS)


def test_from_the_shell(monkeypatch, capsys):
    words = [
        "compare",
        "--scale",
        "lite",
        "--results",
        str(RESULTS),
        "plusplus_table1",
        "fat",
        "at",
    ]
    monkeypatch.setattr(sys, "argv", words)
    main()
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["high", "p", "n", "seeds"]
    assert [line.split()[3] for line in lines][:2] == ["NAT", "PGD20_inf"]
