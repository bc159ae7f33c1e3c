"""The papers' text against their tables: altered numbers and new lines of statements.csv."""

from dataclasses import replace

import pandas as pd
import pytest

from harness.core.errors import UserError
from harness.papers.experiments import rows_of_others, settings_that_differ
from harness.papers.published import Papers, matching
from harness.papers.statements import comparisons_in_prose, numbers_in_prose


@pytest.fixture(scope="module")
def papers():
    return Papers.read()


def found_by(rule, papers, where, text):
    return [one for one in rule(papers) if where in one.where and text in one.found]


def changed(papers, value, **where):
    """The papers with one printed number altered."""
    values = papers.values.copy()
    at = (values[list(where)] == pd.Series(where)).all(axis=1)
    assert at.sum() == 1
    values.loc[at, "value"] = value
    return replace(papers, values=values)


@pytest.mark.parametrize(
    ("rule", "method", "metric", "value", "where", "found"),
    [
        (numbers_in_prose, "nt", "NAT", 93.5, "93.04 of natural training", "gives 93.50"),
        (comparisons_in_prose, "at", "NAT", 89.5, "lower test error", "not above at 89.50"),
        (comparisons_in_prose, "at", "NAT", 93.5, "second highest", "is number 3"),
    ],
)
def test_an_altered_number_contradicts_the_prose(rule, method, metric, value, where, found, papers):
    place = {"document": "cvpr23", "artefact": "table1a", "method": method, "metric": metric}
    assert not found_by(rule, papers, where, found)
    assert found_by(rule, changed(papers, value, **place), where, found)


def said(papers, **fields):
    """The papers with one more line in statements.csv."""
    line = {name: fields.get(name, "") for name in papers.statements.columns}
    return replace(papers, statements=pd.concat([papers.statements, pd.DataFrame([line])]))


@pytest.mark.parametrize(
    ("rule", "statement", "found"),
    [
        (numbers_in_prose, {"method": "at", "relation": "=", "value": "84.3"}, None),
        (numbers_in_prose, {"method": "at", "relation": "=", "value": "84.2"}, "gives 84.32"),
        (comparisons_in_prose, {"method": "at", "relation": "above", "value": "85"}, "at 84.32"),
        (comparisons_in_prose, {"method": "at", "than": "rst;fat", "relation": "lower than"}, None),
        (
            comparisons_in_prose,
            {"method": "fat", "than": "at;rst", "relation": "lower than"},
            "fat 87.72, not below at 84.32, rst 84.71",
        ),
        (
            comparisons_in_prose,
            {"method": "fat", "than": "at", "relation": "leads by more than", "value": "3.5"},
            "fat leads by 3.40",
        ),
        (
            comparisons_in_prose,
            {"method": "nt", "than": "*", "relation": "only above", "value": "89"},
            "generalist_d_nt_linf is, too",
        ),
        (
            settings_that_differ,
            {"metric": "epochs", "dataset": "cifar10", "relation": "setting", "value": "100"},
            "120 / 100",
        ),
    ],
)
def test_a_new_statement_is_judged_like_the_others(rule, statement, found, papers):
    fields = {"document": "cvpr23", "place": "planted", "artefact": "table1a", "metric": "NAT"}
    accused = found_by(rule, said(papers, **{**fields, **statement}), "planted", found or "")
    assert bool(accused) == (found is not None)


def test_a_leaderboard_entry_that_is_a_row(papers):
    entry = dict(papers.leaderboard.iloc[0]) | {"dataset": "cifar10", "entry": "planted"}
    entry |= {"clean_acc": 84.32, "autoattack_acc": 44.37}
    more = replace(papers, leaderboard=pd.DataFrame([entry]))
    assert found_by(rows_of_others, more, "plusplus, IV-A / table1, cifar10, resnet18, at", "44.37")


def test_a_bad_statement_is_refused(papers):
    fields = {"document": "cvpr23", "metric": "NAT", "method": "at", "value": "1"}
    with pytest.raises(UserError, match="did you mean 'leads by'"):
        list(numbers_in_prose(said(papers, **fields, relation="lead by")))
    with pytest.raises(UserError, match="expected printed numbers"):
        list(numbers_in_prose(said(papers, **fields, relation="=", artefact="table99")))
    mistyped = {**fields, "method": "att", "artefact": "table1a"}
    with pytest.raises(UserError, match=r"table1a in values\.csv has no att"):
        list(numbers_in_prose(said(papers, **mistyped, relation="=")))


def test_patterns_choose_names():
    names = ["nt", "at", "generalist_t"]
    assert matching("", names) == names
    assert matching("*;-generalist*", names, without="at") == ["nt"]
    assert matching("at;nt", names) == ["nt", "at"]
