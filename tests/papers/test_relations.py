"""One set of relations: for both sources of numbers, and for claims and audit alike."""

from types import SimpleNamespace

import pandas as pd
import pytest
from small_table import PLACE, claimed, reports_of, small_plan, store

from harness.papers.claims import parse
from harness.papers.comparisons import comparisons
from harness.papers.measured import Measured
from harness.papers.printed import Printed
from harness.papers.published import Papers
from harness.papers.relations import RELATIONS, Statement, tree
from harness.papers.statements import COMPARISONS, columns, statement
from harness.papers.verdicts import Verdict

NATURAL = {"nt": 0.95, "at": 0.8, "trades6": 0.9, "fat": 0.7}
HIGH, LOW = ["trades6"], ["at", "fat"]


def printed(numbers):
    row = dict(document="cvpr23", artefact="table1a", dataset="cifar10", arch="resnet18", std=None)
    lines = [{**row, "method": m, "metric": "NAT", "value": 100 * n} for m, n in numbers.items()]
    return Printed(pd.DataFrame(lines))


CASES = [
    ({"better": HIGH, "than": LOW}, True),
    ({"better": LOW, "than": HIGH}, False),
    ({"better": LOW, "than": HIGH, "lower": True}, True),
    ({"better": ["at"], "than": ["trades6", "fat"], "any": True}, True),
    ({"order": ["nt", "trades6", "at"]}, True),
    ({"order": ["nt", "at", "trades6"]}, False),
    ({"peak": ["at", "nt", "fat"]}, True),
    ({"peak": ["nt", "at", "fat"]}, False),
    ({"above": 85, "methods": HIGH}, True),
    ({"above": 85, "methods": LOW}, False),
    ({"below": 85, "methods": LOW}, True),
    ({"at_most": 85, "methods": HIGH}, False),
    ({"above": 5, "methods": HIGH, "quantity": "lead", "rivals": ["at"]}, True),
    ({"above": 15, "methods": HIGH, "quantity": "lead", "rivals": ["at"]}, False),
    ({"only": "trades6", "than": LOW, "above": {"NAT": 85}}, True),
    ({"only": "trades6", "than": ["nt", "at"], "above": {"NAT": 85}}, False),
]
# Our records have no exact numbers, and classes or seeds have no printed numbers.
PRINTED = [
    ({"equals": 90, "methods": HIGH}, True),
    ({"equals": 89, "methods": HIGH}, False),
    ({"equals": 10, "methods": HIGH, "quantity": "error"}, True),
    ({"equals": 2, "methods": HIGH, "quantity": "rank", "rivals": ["nt", "at", "fat"]}, True),
    ({"at_most": 2, "methods": ["at"], "quantity": "rank", "rivals": ["nt", "trades6"]}, False),
    ({"equals": 50, "methods": HIGH, "quantity": "error cut", "rivals": ["at", "fat"]}, True),
]
MEASURED = [{"harder": ["cat"], "than": ["dog"], "methods": ["at"]}]
MEASURED += [{"deviation_below": 0.5, "methods": ["at"]}]
ALIKE = [  # on 1,000 images; NAT differs by 10 points
    ({"alike": ["at"], "as": "trades6", "within": 13}, True),
    ({"alike": ["at"], "as": "trades6", "within": 7}, False),
    ({"alike": ["at"], "as": "trades6", "within": 10.1}, None),
]
# Fronts in natural and PGD20 accuracy: that of `trades6` has all that the others have, and more.
FRONTS = [
    ({"front": ["trades6", "fat"], "than": ["at"], "columns": ["NAT", "PGD20"]}, True),
    ({"front": ["at"], "than": ["trades6", "fat"], "columns": ["NAT", "PGD20"]}, False),
    ({"front": ["trades6"], "than": ["trades6", "fat"], "columns": ["NAT", "PGD20"]}, None),
]


def stated(entry):
    return tree(Statement({"columns": ["NAT"], **entry}, PLACE, ("cat", "dog")))


@pytest.fixture(scope="module")
def records(plan, tmp_path_factory):
    small, results = small_plan(plan), tmp_path_factory.mktemp("results")
    store(small, results, {method: (share, 0.1) for method, share in NATURAL.items()})
    trees = [stated(entry) for entry, _ in CASES + PRINTED + ALIKE + FRONTS]
    numbers = [n for t in trees for c in comparisons(t) for n in c.accuracies]
    return Measured(small, results, reports_of(small, results), numbers)


@pytest.mark.parametrize(("entry", "true"), CASES)
def test_a_relation_on_both_sources(entry, true, records):
    assert Verdict(stated(entry), printed(NATURAL)).true is true
    assert Verdict(stated(entry), records).true is true


@pytest.mark.parametrize(("entry", "true"), ALIKE)
def test_two_rows_are_alike_if_their_difference_is_surely_small(entry, true, records):
    assert Verdict(stated(entry), records).true is true
    assert Verdict(stated(entry), printed(NATURAL)).true is (entry["within"] >= 10)


@pytest.mark.parametrize(("entry", "true"), FRONTS)
def test_a_front_has_a_larger_area(entry, true, records):
    found = Verdict(stated(entry), records)
    assert found.true is true
    assert "area of the front of NAT and PGD20, cifar10, resnet18: " in found.text("")
    assert f"({len(entry['front'])} models) " in found.text("")


@pytest.mark.parametrize(("entry", "true"), PRINTED)
def test_an_equality_or_a_rank_on_printed_numbers_only(entry, true, records):
    assert Verdict(stated(entry), printed(NATURAL)).true is true
    assert Verdict(stated(entry), records).word("", "not measured") == "not measured"


@pytest.mark.parametrize("entry", MEASURED)
def test_classes_and_deviations_are_not_printed(entry):
    assert Verdict(stated(entry), printed(NATURAL)).word("", "no number") == "no number"


def test_no_relation_is_left_out():
    entries = [entry for entry, _ in CASES + PRINTED + ALIKE] + MEASURED
    assert {name for entry in entries for name in entry} >= {*RELATIONS, "only"}


def test_equal_numbers_are_not_better():
    """What is exactly at the limit is not above it, so it is no second one above it."""
    numbers = printed({"trades6": 0.9, "at": 0.85, "fat": 0.85})
    only = {"only": "trades6", "than": LOW, "above": {"NAT": 85}}
    assert Verdict(stated(only), numbers).true is True
    assert Verdict(stated({"better": ["at"], "than": ["fat"]}), numbers).true is False
    assert Verdict(stated({"above": 85, "methods": ["at"]}), numbers).true is False
    assert Verdict(stated({"at_most": 85, "methods": ["at"]}), numbers).true is True


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"better": "trades6", "than": LOW, "columns": ["NAT"]},
            {"method": "trades6", "than": "at;fat", "relation": "higher than"},
        ),
        (
            {"better": "at", "than": ["fat", "rst"], "columns": ["NAT"], "lower": True},
            {"method": "at", "than": "fat;rst", "relation": "lower than"},
        ),
        (
            {"above": 84, "methods": ["at"], "columns": ["NAT"]},
            {"method": "at", "relation": "above", "value": "84"},
        ),
        (
            {"only": "trades6", "than": LOW, "above": {"NAT": 89}},
            {"method": "trades6", "than": "at;fat", "relation": "only above", "value": "89"},
        ),
    ],
)
def test_an_entry_of_the_claims_and_a_line_of_the_text_are_one_tree(entry, line, plan):
    papers = Papers.read()
    fields = dict.fromkeys(papers.statements.columns, "")
    fields |= {"document": "cvpr23", "artefact": "table1a", "metric": "NAT", **line}
    text = SimpleNamespace(**fields)
    (column,) = columns(text, papers)
    (claim,) = parse(claimed({**entry, "in": "here"}), plan)
    (part,) = claim.tree.parts
    audited = tree(statement(text, column, text.method))
    assert audited == part
    # Nor do the two ways to the printed numbers differ: by our names, and by the papers'.
    both = [Verdict(part, Printed(papers.values, some)).true for some in (plan, None)]
    assert both[0] is both[1] is not None


def test_the_relations_of_the_text_are_relations_of_the_claims():
    used = {"equals", *(relation for relation, _ in COMPARISONS.values())}
    assert used <= {*RELATIONS, "only"}
