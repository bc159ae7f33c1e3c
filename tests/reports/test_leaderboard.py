"""The leaderboard: every number with n and interval, doubts marked, BibTeX for each method."""

import re

import pandas as pd
import pytest
from browser import Browser, chromium
from test_robustbench import small, store

from harness.core.config import read_papers
from harness.external.report import Report
from harness.grid.robustbench import entries
from harness.reports.bibtex import bibtex
from harness.reports.page.leaderboard import OTHERS, OURS, PAPERS, ROBUSTBENCH, rows, write_leaderboard
from harness.reports.tables import write_table

__all__ = ["small"]  # a fixture of the other test
DOUBT = {"name": "sweep", "ok": False, "found": "rises", "norm": "l2"}


def foreign(folder):
    """What `generalist-bench evaluate --model` leaves, of a network that nobody here trained."""
    common = {"low": 10.0, "high": 90.0, "n": 50, "gradient_calls": 9, "measures": "accuracy"}
    table = pd.DataFrame(
        [
            {"column": "NAT", "norm": "", "eps": "", "percent": 80.0, **common, "doubts": ""},
            {
                "column": "AA",
                "norm": "linf",
                "eps": "4/255",
                "percent": 30.0,
                **common,
                "doubts": "masked",
            },
        ]
    )
    checks = pd.DataFrame([{"check": "masked", "norm": "", "verdict": "failed", "found": "it is"}])
    about = {"model": "net.py:<build>", "images": "the first 50 of 500 test images of digits"}
    return Report(table, pd.DataFrame({"label": [1]}), checks, (), about, folder).save()


@pytest.fixture(scope="module")
def made(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    store(small, folder, [DOUBT])
    for name in small.artefacts:
        write_table(small, name, folder / "results", folder / "reports")
    foreign(folder / "results" / "external" / "net")
    return folder


@pytest.fixture(scope="module")
def found(small, made):
    return rows(small, made / "results", made / "reports")


def test_every_model_is_there_with_n_and_interval(small, found):
    kinds = [row["kind"] for row in found]
    assert kinds.count(OURS) == len(entries(small.artefacts))
    assert kinds.count(OTHERS) == 1
    assert kinds.count(PAPERS) == 5  # AT in two norms, Generalist-T in both; NT's row prints an AA too
    assert kinds.count(ROBUSTBENCH) == 12
    for row in found:
        for number in (row["natural"], row["robust"]):
            assert number["n"] > 0
            assert number["low"] <= number["value"] <= number["high"]
            assert ("assumed" in number) == (row["kind"] in (PAPERS, ROBUSTBENCH))


def test_the_numbers_are_the_tables(made, found):
    table = pd.read_csv(made / "reports" / "ci" / "tables" / "cvpr23_table1a.csv")
    cell = table[(table.method == "at") & (table.column == "AA")].iloc[0]
    (row,) = [r for r in found if (r["model"], r["kind"], r["threat"]) == ("AT", OURS, "l_inf 36/255")]
    assert row["robust"] == {"value": cell.ours, "low": cell.low, "high": cell.high, "n": cell.n}
    (printed,) = [
        r for r in found if (r["model"], r["kind"], r["threat"]) == ("AT", PAPERS, row["threat"])
    ]
    assert printed["robust"]["value"] == cell.published
    assert printed["dataset"] == "cifar10"  # the paper's, not the stand-in


def test_what_is_doubtful_is_marked(small, found):
    selected = small.label("generalist_d_nt_linf@released")
    for row in (row for row in found if row["kind"] == OURS):
        told = "† epoch selected on test data" in row["marks"]
        assert told == (row["model"] == selected)
        assert any(mark.startswith("‡ failed: sweep") for mark in row["marks"]) == (
            "l_2" in row["threat"]
        )
    (theirs,) = [row for row in found if row["kind"] == OTHERS]
    assert theirs["marks"] == ["‡ failed: masked"]
    assert (theirs["dataset"], theirs["threat"]) == ("digits", "l_inf 4/255")


def test_bibtex_of_every_method(found):
    papers = read_papers()["papers"]
    without = {key for key, paper in papers.items() if "year" not in paper}
    assert without == {"none", "zipper"}
    for key in papers.keys() - without:
        text = bibtex(key, papers[key])
        assert text.count("{") == text.count("}")
        assert re.match(rf"@(inproceedings|misc)\{{{key},\n  title = ", text)
        assert f"year = {{{papers[key]['year']}}}" in text
        assert str(papers[key]["year"]) in papers[key]["venue"]
        assert "booktitle" in text or papers[key]["venue"].startswith("arXiv")
    assert " and Ludwig Schmidt and " in bibtex("madry2018", papers["madry2018"])
    assert all(row["paper"] in papers for row in found if row["paper"])


@pytest.fixture(scope="module")
def chrome():
    if chromium() is None:
        pytest.skip("no Chromium on this machine: install chromium to test the leaderboard in it")
    with Browser() as started:
        yield started


@pytest.fixture
def opened(chrome, small, made):
    path = write_leaderboard(small, made / "results", made / "reports")
    chrome.problems.clear()
    chrome.requests.clear()
    chrome.media()
    chrome.open(path)
    return chrome


def test_it_opens_from_disk_sorts_and_cites(opened, found):
    assert opened.problems == []
    assert all(one.startswith(("data:", "file:")) for one in opened.requests)
    column = "[...document.querySelectorAll('tbody tr')].map(r => Number(r.cells[1].dataset.value))"
    before = opened.value(column)
    assert len(before) == len(found)
    opened.click("thead th:nth-child(2) button")
    assert opened.value(column) == sorted(before, reverse=True)
    links = "[...document.querySelectorAll('tbody a')]"
    assert opened.value(f"{links}.length") > 5
    assert opened.value(f"{links}.every(a => document.querySelector(a.getAttribute('href')))")
    assert "net.py:<build>" in opened.value("document.body.innerText")  # a name is only a name


def test_it_is_readable_on_a_phone_and_in_the_dark(opened):
    opened.resize(390, 844)
    assert opened.value("document.documentElement.scrollWidth") <= 390
    intervals = "[...document.querySelectorAll('td .about')].every(e => e.checkVisibility())"
    assert opened.value(intervals)
    light = opened.value("getComputedStyle(document.body).backgroundColor")
    opened.media(prefers_color_scheme="dark")
    assert opened.value("getComputedStyle(document.body).backgroundColor") != light
