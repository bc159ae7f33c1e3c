"""The logic of verdicts: what is true, open or missing, and how it is worded."""

import pytest

from harness.core.statistics import Difference
from harness.papers.comparisons import Comparison, Every, Evidence, MissingError, Number, Some
from harness.papers.verdicts import Verdict

UP, DOWN, OPEN = 2.0, -1.0, None  # an open one has a test that rejects nothing


def verdict_of(make, **numbers):
    """The verdict on a tree that `make` builds of comparisons by name; `gone...` are missing."""

    def source(comparison):
        name = comparison.one.method
        if name.startswith("gone"):
            raise MissingError("no", name)
        test = Difference(0.1, -1.0, 1.0, 0.9) if numbers[name] is OPEN else None
        return Evidence(numbers[name] or 0.1, 0.0, name, test)

    names = [*numbers, *(f"gone{number}" for number in range(6))]
    tree = {name: Comparison(Number("t", "d", "n", name, ("c",)), 0.0) for name in names}
    return Verdict(make(**tree), source)


@pytest.mark.parametrize(
    ("make", "true"),
    [
        (lambda up, **_: Every((up, up)), True),
        (lambda up, down, **_: Every((up, down)), False),
        (lambda up, down, **_: Some((up, down)), True),
        (lambda up, down, **_: Every((Some((down, down)), up)), False),
    ],
)
def test_every_and_some(make, true):
    assert verdict_of(make, up=UP, down=DOWN).true is true


def test_what_is_there_is_judged():
    verdict = verdict_of(lambda up, gone0, gone1, **_: Every((up, gone0, gone1)), up=UP)
    assert (verdict.true, verdict.whole) == (True, False)
    assert verdict.text("missing") == "up; missing: no gone0, gone1 (2 comparisons)"
    assert verdict.word("measured", "") == "holds where measured (1 of 3 comparisons)"


def test_one_false_comparison_decides_whatever_is_missing():
    verdict = verdict_of(lambda up, down, gone0, **_: Every((up, down, gone0)), up=UP, down=DOWN)
    assert (verdict.true, verdict.whole) == (False, True)
    assert verdict.text("not measured") == "up; down; not measured: no gone0 (1 comparison)"
    assert verdict.word("measured", "") == "fails"


def test_an_open_comparison_leaves_it_undecided_whatever_is_missing():
    verdict = verdict_of(lambda up, wide, gone0, **_: Every((up, wide, gone0)), up=UP, wide=OPEN)
    assert verdict.word("measured", "") == "undecided"
    assert verdict.text("not measured") == ("up; wide, p = 0.9; not measured: no gone0 (1 comparison)")


def test_nothing_measured_is_not_a_verdict():
    verdict = verdict_of(lambda gone0, gone1, **_: Every((gone0, Some((gone1,)))))
    assert verdict.true is None
    assert verdict.word("measured", "not measured") == "not measured"
    assert verdict.text("not measured") == "no gone0, gone1 (2 comparisons)"


@pytest.mark.parametrize(
    ("some", "word", "numbers"),
    [
        (("up", "gone0"), "holds", "own; up"),  # one true alternative suffices
        (("down", "gone0"), "undecided", "own; down"),  # the lacking one might be true
        (("wide", "gone0"), "undecided", "own; wide, p = 0.9"),
        (("gone0", "gone1"), "holds where measured (1 of 3 comparisons)", "own"),
        (("down", "down"), "fails", "own; down"),
    ],
)
def test_alternatives_of_which_some_are_missing(some, word, numbers):
    def make(own, **names):
        return Every((own, Some(tuple(names[name] for name in some))))

    verdict = verdict_of(make, own=UP, up=UP, down=DOWN, wide=OPEN)
    assert verdict.word("measured", "") == word
    assert verdict.text("missing").partition("; missing")[0] == numbers


def test_many_comparisons_of_which_a_lacking_alternative_decides():
    """All that was measured is true or false, yet the claim is open: the weakest is told."""

    def make(a, b, c, down, gone0, **_):
        return Every((a, b, c, Some((down, gone0))))

    verdict = verdict_of(make, a=UP, b=UP, c=UP, down=DOWN)
    assert verdict.true is None
    assert verdict.text("").startswith("down (of 4 comparisons 3 true, 1 false); ")


def test_reasons_are_told_once():
    verdict = verdict_of(lambda up, **gone: Every((up, *gone.values())), up=UP)
    assert verdict.text("").endswith("no gone0, gone1, gone2 and 3 more (6 comparisons)")
