"""Claims: what becomes of them on printed numbers and on records with known answers."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import yaml
from conftest import ROOT, command

from harness.core import paths
from harness.core.config import read_claims
from harness.core.descriptions import write_description
from harness.core.errors import UserError
from harness.core.statistics import Difference
from harness.evaluation.records import Record, write_records
from harness.grid.columns import Formula
from harness.grid.plan import Plan
from harness.papers.claims import judge, markdown, parse, read, runs
from harness.papers.comparisons import (
    Comparison,
    Every,
    Evidence,
    MissingError,
    Number,
    Some,
    comparisons,
)
from harness.papers.measured import Measured
from harness.papers.printed import Printed
from harness.papers.published import Papers
from harness.papers.verdicts import Verdict
from harness.reports.page.artefacts import verdicts as on_page
from harness.reports.page.render import environment

ARTEFACT = "cvpr23_table1a"
PLACE = f"{ARTEFACT}/cifar10/resnet18"
METHODS = ["nt", "at", "trades6", "fat"]


@pytest.fixture(scope="module")
def small(plan):
    """A plan with one small table."""
    grid = copy.deepcopy(plan.grid)
    entry = {**grid["artefacts"][ARTEFACT], "methods": METHODS, "columns": ["NAT", "PGD20"]}
    grid["artefacts"] = {ARTEFACT: entry}
    return Plan(grid, plan.scale, "ci")


@pytest.fixture(scope="module")
def seeded(small):
    """The same table with three seeds."""
    grid = copy.deepcopy(small.grid)
    grid["artefacts"][ARTEFACT]["seeds"] = 3
    return Plan(grid, {**small.scale, "seeds": [0, 1, 2]}, "ci")


def record(correct) -> Record:
    correct = np.asarray(correct, bool)
    stage = np.where(correct, -1, 0).astype(np.int8)
    return Record(correct, correct.astype(np.int16), stage, 1, 20, 1, 1)


def store(plan, results, accuracies, n=1000, checks=(), shuffled=()):
    """Records on disk; a method's accuracies are those of its columns, one pair per seed.

    The images that a worse model gets right are among those of a better one, unless `shuffled`.
    """
    for cell in plan.artefacts[ARTEFACT].cells:
        if cell.method not in accuracies:
            continue
        given = accuracies[cell.method]
        for seed, run in enumerate(cell.runs):
            pair = given[seed] if isinstance(given, list) else given
            order = np.arange(n)
            if cell.method in shuffled:
                order = np.random.default_rng(1).permutation(n)
            evaluation = plan.evaluations[run]
            records = {
                probe.id: record(order < share * n)
                for probe, share in zip(
                    sorted(evaluation.probes, key=lambda p: p.attack is not None), pair, strict=True
                )
            }
            probes = {probe.id: {"dataset": probe.dataset} for probe in evaluation.probes}
            about = {"checks": list(checks), "probes": probes, "sources": {"digits": "embedded"}}
            write_records(paths.records(results, evaluation.id), records, about)


def claimed(*parts):
    entry = {"id": "one", "claim": "A claim.", "source": "here", "all_of": list(parts)}
    return {"groups": {"others": ["at", "fat"]}, "places": {"here": [PLACE]}, "claims": [entry]}


def judged(plan, results, *parts):
    return judge(plan, parse(claimed(*parts), plan), results).iloc[0]


BEST = {"better": "trades6", "than": "others", "columns": ["NAT"], "in": "here"}


# --- reading


def test_a_group_a_pattern_and_a_mean(small):
    parts = [
        {**BEST, "columns": [["NAT", "PGD20"]]},
        {"better": "at", "than": "*t", "columns": ["NAT"], "in": [PLACE]},
    ]
    (claim,) = parse(claimed(*parts), small)
    pairs = [(c.one.method, c.other.method) for c in comparisons(claim.tree)]
    assert pairs == [("trades6", "at"), ("trades6", "fat"), ("at", "nt"), ("at", "fat")]
    assert next(comparisons(claim.tree)).one.columns == ("NAT", "PGD20")
    assert set(runs(small, [claim])) == set(small.runs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("in", ["cvpr23_table1a"]), "a place artefact/data set/network"),
        (("columns", "NAT"), "a list of columns"),
        (("better", 3), "a method, a group"),
        (("then", "at"), "only than, columns, .* beside better"),
        (("classes", "cat"), "each, or a list of classes"),
        (("most_in", [["cat"]]), "expected a class"),
        (("where_wrong", "at"), "beside better"),
        (("deviation_below", 0.5), "one of better|beside better"),  # two relations
    ],
)
def test_a_mistake_in_the_claims(change, message, tmp_path):
    content = claimed({**BEST, change[0]: change[1]})
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=message):
        read_claims(path)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"columns": ["NAT"]}, "one of better"),
        ({"peak": ["nt", "at"], "columns": ["NAT"]}, "three rows or more"),
        ({"harder": ["cat"], "than": ["dog"], "columns": ["NAT"]}, "'methods' is a dependency"),
        (
            {"harder": ["cat"], "than": "dog", "methods": ["at"], "columns": ["NAT"]},
            "a list of classes at claims.0.all_of.0.than",
        ),
        ({"deviation_below": 0, "methods": ["at"], "columns": ["NAT"]}, "found 0 is less than"),
        ({"above": 50, "columns": ["NAT"]}, "methods and columns beside above"),
        ({**BEST, "classes": "each", "most_in": ["cat"]}, "should not be valid"),
    ],
)
def test_half_a_relation_is_refused(part, message, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(claimed({**part, "in": "here"})))
    with pytest.raises(UserError, match=message):
        read_claims(path)


def test_unknown_places_are_named(small):
    with pytest.raises(UserError, match="did you mean 'here'"):
        parse(claimed({**BEST, "in": "heer"}), small)


# --- logic


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
    assert verdict.text("not measured") == (
        "up; wide, p = 0.9; not measured: no gone0 (1 comparison)"
    )


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


# --- on printed numbers


@pytest.fixture(scope="module")
def on_paper(plan):
    return judge(plan, read(plan), ROOT / "nowhere").set_index("id")


@pytest.mark.parametrize(
    ("claim", "verdict", "numbers"),
    [
        ("natural_highest", "holds", "89.09 against 87.88 (TRADES (lambda = 1))"),
        ("only_89_46", "holds", "46.07, claimed above 46"),
        ("mnist_svhn_best", "fails", "45.41 against 45.52 (TRADES)"),
        ("cifar100_tradeoff", "holds", "23.96 against 23.87 (AT)"),
        ("trades_at_89", "holds", "30.20, claimed below 31"),
        ("faster_than_trades", "holds", "342.00 against 397.00"),
        ("mean_aa_best", "holds", "33.38 against 32.00"),
        ("true_union_best", "no number", "no true_union"),
        ("t_exceeds_each_aspect", "fails", "of 288 comparisons 276 true, 12 false"),
        ("ood_t_beats_d", "holds", "difference +0.02"),
        ("imagenet_all", "fails", "68.36 against 68.46"),
        ("increasing_gamma", "holds", "47.15 against 46.07"),
        ("c_five", "no number", "the papers print no number for plusplus_fig5"),
        ("ema_helps", "no number", "values.csv has no generalist_d_nt_linf (2 comparisons)"),
        ("hard_classes", "no number", "the papers print no number for plusplus_fig7a (20"),
        (
            "deviations_of_d",
            "holds where printed (6 of 9 comparisons)",
            "deviation of PGD100 over seeds, cifar10, resnet18: Generalist-D, learners side by side"
            " 0.44, claimed below 0.5 (of 6 comparisons 6 true)",
        ),
    ],
)
def test_published_verdicts(claim, verdict, numbers, on_paper):
    row = on_paper.loc[claim]
    assert row.published_verdict == verdict
    assert numbers in row.published_numbers


def test_every_claim_has_a_verdict_with_numbers_on_both_sides(on_paper):
    assert len(on_paper) >= 57
    assert on_paper.index.is_unique
    verdicts = {verdict.partition(" (")[0] for verdict in on_paper.published_verdict}
    assert verdicts == {"holds", "holds where printed", "fails", "no number"}
    assert set(on_paper.our_verdict) == {"not measured"}  # there is no record at all
    assert (on_paper.published_numbers != "").all()
    assert (on_paper.our_numbers != "").all()


def test_claims_name_rows_that_their_tables_have(plan):
    """A mistyped row would never be measured: of a planned artefact every number must be found."""
    claims = read(plan)
    numbers = [number for claim in claims for number in claim.accuracies]
    planned = [number for number in numbers if number.artefact in plan.artefacts]
    assert planned
    measured = Measured(plan, ROOT / "nowhere", planned)
    for number in planned:
        with pytest.raises(MissingError, match="not built yet"):
            measured(Comparison(number, 50.0))


# --- on records


def test_a_clear_difference_holds(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.91, 0.5), "at": (0.8, 0.5), "fat": (0.885, 0.5)})
    row = judged(small, tmp_path, BEST)
    assert row.our_verdict == "holds"
    assert "TRADES (lambda = 6) 91.00 against 88.50 (FAT), difference +2.50 [+1." in row.our_numbers
    assert "n = 1000" in row.our_numbers
    assert "p = " in row.our_numbers
    assert row.published_verdict == "fails"
    assert "83.91 against 87.72 (FAT)" in row.published_numbers


def test_the_other_way_round_it_fails(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.7, 0.5), "at": (0.6, 0.5), "fat": (0.8, 0.5)})
    row = judged(small, tmp_path, BEST)
    assert row.our_verdict == "fails"
    assert "70.00 against 80.00 (FAT), difference -10.00" in row.our_numbers


def test_too_few_images_leave_it_undecided(small, tmp_path):
    accuracies = {"trades6": (0.85, 0.5), "at": (0.7, 0.5), "fat": (0.8, 0.5)}
    store(small, tmp_path, accuracies, n=40, shuffled=["trades6"])
    row = judged(small, tmp_path, BEST)
    assert row.our_verdict == "undecided"
    assert "85.00 against 80.00 (FAT), difference +5.00 [-" in row.our_numbers


def test_holm_counts_the_comparisons_of_the_claim(small, tmp_path):
    """Six images more of a thousand: p = 0.03 alone, 0.06 as one of two comparisons."""
    store(small, tmp_path, {"trades6": (0.906, 0.5), "at": (0.9, 0.5), "fat": (0.9, 0.5)})
    alone = {**BEST, "than": ["at"]}
    assert judged(small, tmp_path, alone).our_verdict == "holds"
    assert judged(small, tmp_path, alone, alone).our_verdict == "holds"  # said twice, counted once
    row = judged(small, tmp_path, BEST)
    assert row.our_verdict == "undecided"
    assert "p = 0.06" in row.our_numbers


def test_an_order_and_a_mean_of_columns(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.7, 0.6), "at": (0.8, 0.4), "fat": (0.75, 0.35)})
    order = {"order": ["trades6", "at", "fat"], "columns": [["NAT", "PGD20"]], "in": "here"}
    row = judged(small, tmp_path, order)
    assert row.our_verdict == "holds"
    assert (
        "mean of NAT, PGD20, cifar10, resnet18: TRADES (lambda = 6) 65.00 against 60.00 (AT)"
        in (row.our_numbers)
    )
    assert judged(small, tmp_path, {**order, "lower": True}).our_verdict == "fails"


@pytest.mark.parametrize(
    ("accuracies", "verdict", "numbers"),
    [
        ({"trades6": (0.95, 0.55), "at": (0.95, 0.4), "fat": (0.8, 0.6)}, "holds", "95.00"),
        ({"trades6": (0.95, 0.55), "at": (0.95, 0.6), "fat": (0.8, 0.6)}, "fails", "AT"),
        ({"trades6": (0.8, 0.55), "at": (0.8, 0.4), "fat": (0.8, 0.4)}, "fails", "80.00"),
        ({"trades6": (0.95, 0.55), "at": (0.9, 0.46), "fat": (0.8, 0.4)}, "undecided", "46.00"),
    ],
)
def test_the_only_one(accuracies, verdict, numbers, small, tmp_path):
    store(small, tmp_path, accuracies)
    only = {"only": "trades6", "than": "others", "above": {"NAT": 89, "PGD20": 46}, "in": "here"}
    row = judged(small, tmp_path, only)
    assert row.our_verdict == verdict
    assert numbers in row.our_numbers


def test_seeds_that_disagree_decide_nothing(seeded, tmp_path):
    plan = seeded
    same = {"at": [(0.8, 0.5)] * 3, "fat": [(0.8, 0.5)] * 3}
    store(plan, tmp_path, {"trades6": [(0.9, 0.5), (0.91, 0.5), (0.92, 0.5)], **same})
    row = judged(plan, tmp_path, BEST)
    assert row.our_verdict == "holds"
    assert "n = 1000 x 3 seeds" in row.our_numbers
    store(plan, tmp_path, {"trades6": [(0.99, 0.5), (0.95, 0.5), (0.79, 0.5)], **same})
    row = judged(plan, tmp_path, BEST)
    assert row.our_verdict == "undecided"
    assert "91.00 against 80.00" in row.our_numbers


def test_what_is_not_built_says_what_to_build(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.9, 0.5)})
    row = judged(small, tmp_path, BEST)
    assert row.our_verdict == "not measured"
    assert f"snakemake --cores 2 {ARTEFACT} --config scale=ci" in row.our_numbers
    elsewhere = {**BEST, "in": ["plusplus_fig5/cifar10/resnet18"]}
    assert "does not build plusplus_fig5" in judged(small, tmp_path, elsewhere).our_numbers
    mistyped = {**BEST, "columns": ["CW"]}
    assert (
        "cvpr23_table1a at scale ci has no CW (2" in judged(small, tmp_path, mistyped).our_numbers
    )


def test_a_network_that_the_scale_leaves_out(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.95, 0.5), "at": (0.8, 0.5), "fat": (0.8, 0.5)})
    wide = f"{ARTEFACT}/cifar10/wrn32_10"
    row = judged(small, tmp_path, {**BEST, "in": [PLACE, wide]})
    assert row.our_verdict == "holds where measured (2 of 4 comparisons)"
    assert "95.00 against 80.00 (AT)" in row.our_numbers
    assert row.our_numbers.endswith(
        "; not measured: cvpr23_table1a at scale ci has no wrn32_10 (2 comparisons)"
    )
    assert judged(small, tmp_path, {**BEST, "in": [wide]}).our_verdict == "not measured"
    store(small, tmp_path, {"trades6": (0.7, 0.5)})
    assert judged(small, tmp_path, {**BEST, "in": [PLACE, wide]}).our_verdict == "fails"


def test_a_pattern_means_the_rows_of_the_grid(small, tmp_path):
    """A scale with fewer rows measures a part of "better than all"; so does one without the table."""
    fewer = {**small.scale, "artefacts": {ARTEFACT: {"methods": ["at", "trades6", "fat"]}}}
    plan = Plan(small.grid, fewer, "ci")
    store(plan, tmp_path, {"trades6": (0.95, 0.5), "at": (0.8, 0.5), "fat": (0.8, 0.5)})
    best = {**BEST, "than": "*"}
    row = judged(plan, tmp_path, best)
    assert row.our_verdict == "holds where measured (2 of 3 comparisons)"
    assert "at scale ci has no nt (1 comparison)" in row.our_numbers
    out = Plan(small.grid, {**small.scale, "left_out": {ARTEFACT: "no time"}}, "ci")
    row = judged(out, tmp_path, best)
    assert row.our_verdict == "not measured"
    assert row.our_numbers == "scale ci does not build cvpr23_table1a: no time (3 comparisons)"
    assert row.published_verdict == judged(plan, tmp_path, best).published_verdict == "fails"


def test_the_papers_may_lack_a_number_too(small, tmp_path):
    row = judged(small, tmp_path, {**BEST, "better": "fat", "than": ["at", "eat"]})
    assert row.published_verdict == "holds where printed (1 of 2 comparisons)"
    assert "not printed: cvpr23_table1a in values.csv has no eat (1 comp" in row.published_numbers


def test_a_failed_trust_check_is_not_silent(small, tmp_path):
    check = {"name": "usable gradients", "ok": False, "found": "none"}
    store(
        small,
        tmp_path,
        {"trades6": (0.9, 0.5), "at": (0.8, 0.5), "fat": (0.8, 0.5)},
        checks=[check],
    )
    assert "‡ 3 of its numbers are touched" in judged(small, tmp_path, BEST).our_numbers
    assert "(usable gradients)" in judged(small, tmp_path, BEST).our_numbers


def test_minutes_are_compared_as_numbers(small, tmp_path):
    """Training time has no images behind it; the records say what the training took."""
    artefact = small.artefacts[ARTEFACT]
    minutes = Formula("measured", ("minutes",))
    cells = [
        replace(cell, column="minutes", formula=minutes)
        for cell in artefact.cells
        if cell.column == "NAT"
    ]
    plan = copy.copy(small)
    plan.artefacts = {ARTEFACT: replace(artefact, cells=tuple(cells))}
    for seconds, cell in zip((60, 120, 300, 180), cells, strict=True):
        path = paths.records(tmp_path, plan.evaluations[cell.runs[0]].id)
        write_records(path, {}, {"checks": [], "trained": {"seconds": seconds}})
    order = {"order": ["at", "fat", "trades6"], "columns": ["minutes"], "lower": True, "in": "here"}
    row = judged(plan, tmp_path, order)
    assert row.our_verdict == "holds"
    assert (
        "AT 2.00 against 3.00 (FAT), difference -1.00 minutes, without an interval"
        in row.our_numbers
    )
    assert judged(plan, tmp_path, {**order, "lower": False}).our_verdict == "fails"
    short = {"below": 4, "methods": ["at", "fat"], "columns": ["minutes"], "in": "here"}
    assert judged(plan, tmp_path, short).our_verdict == "holds"


# --- a peak and a trough


PEAK = {"peak": METHODS, "columns": ["NAT"], "in": "here"}


@pytest.mark.parametrize(
    ("shares", "verdict", "numbers"),
    [
        ((0.5, 0.7, 0.8, 0.6), "holds", "TRADES (lambda = 6) 80.00 against 60.00 (FAT)"),
        ((0.5, 0.6, 0.7, 0.8), "fails", "TRADES (lambda = 6) 70.00 against 80.00 (FAT)"),
        ((0.5, 0.6, 0.803, 0.8), "undecided", "80.30 against 80.00 (FAT)"),
        ((0.8, 0.5, 0.4, 0.9), "fails", "50.00 against 80.00 (NT)"),
    ],
)
def test_a_peak_is_above_both_ends(shares, verdict, numbers, small, tmp_path):
    store(small, tmp_path, {m: (share, 0.1) for m, share in zip(METHODS, shares, strict=True)})
    row = judged(small, tmp_path, PEAK)
    assert row.our_verdict == verdict
    assert numbers in row.our_numbers
    pattern = judged(small, tmp_path, {**PEAK, "peak": "*"})  # the rows in the grid's order
    assert (pattern.our_verdict, pattern.our_numbers) == (row.our_verdict, row.our_numbers)


def test_a_trough_is_a_peak_of_less(small, tmp_path):
    store(
        small, tmp_path, {m: (x, 0.1) for m, x in zip(METHODS, (0.9, 0.5, 0.7, 0.8), strict=True)}
    )
    assert judged(small, tmp_path, {**PEAK, "lower": True}).our_verdict == "holds"
    assert judged(small, tmp_path, PEAK).our_verdict == "fails"


def test_a_peak_that_may_be_where_nothing_was_measured(small, tmp_path):
    shares = {"nt": 0.5, "trades6": 0.6, "fat": 0.8}  # AT's is not there, and might be the peak
    store(small, tmp_path, {method: (share, 0.1) for method, share in shares.items()})
    assert judged(small, tmp_path, PEAK).our_verdict == "undecided"
    nowhere = {**PEAK, "peak": "nothing~*", "in": ["plusplus_fig5/cifar10/resnet18"]}
    assert judged(small, tmp_path, nowhere).our_verdict == "not measured"


# --- classes


@pytest.fixture(scope="module")
def by_class(small):
    """The small table on CIFAR-10 itself, whose classes have names."""
    return Plan(small.grid, {**small.scale, "datasets": {}}, "ci")


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def store_by_class(plan, results, accuracies, each=100):
    """Records by class: method -> class -> natural accuracy; `usual` is that of the other classes."""
    labels = np.repeat(np.arange(10), each)
    place = np.tile(np.arange(each), 10)
    for cell in plan.artefacts[ARTEFACT].cells:
        if cell.method in accuracies:
            shares = accuracies[cell.method]
            limits = np.array([shares.get(name, shares["usual"]) for name in CLASSES])
            flags = record(place < each * limits[labels])
            evaluation = plan.evaluations[cell.runs[0]]
            about = {"checks": [], "probes": {}, "sources": {}}
            path = paths.records(results, evaluation.id)
            records = {probe.id: flags for probe in evaluation.probes}
            write_records(path, records, about, labels={"cifar10": labels})


HARDER = {"harder": ["cat", "dog"], "than": ["ship", "truck"], "methods": ["at"]}
HARDER |= {"columns": ["NAT"], "in": "here"}


def test_harder_classes_are_compared_with_other_images(by_class, tmp_path):
    store_by_class(by_class, tmp_path, {"at": {"usual": 0.8, "cat": 0.5, "dog": 0.6}})
    row = judged(by_class, tmp_path, HARDER)
    assert row.our_verdict == "holds"
    told = "NAT, cifar10, resnet18: AT on cat 50.00 against 80.00 (AT on ship, truck), difference "
    assert f"{told}-30.00 [-" in row.our_numbers
    assert "n = 100 and 200" in row.our_numbers
    assert row.published_verdict == "no number"
    assert "no number for some of the images" in row.published_numbers
    store_by_class(by_class, tmp_path, {"at": {"usual": 0.8, "cat": 0.5, "dog": 0.95}})
    assert judged(by_class, tmp_path, HARDER).our_verdict == "fails"
    # taken as a whole they are harder all the same
    pooled = {**HARDER, "harder": [["cat", "dog"]]}
    row = judged(by_class, tmp_path, pooled)
    assert "AT on cat, dog 72.50 against 80.00" in row.our_numbers
    store_by_class(by_class, tmp_path, {"at": {"usual": 0.8, "cat": 0.5, "dog": 0.78}})
    assert judged(by_class, tmp_path, HARDER).our_verdict == "undecided"
    assert judged(by_class, tmp_path, pooled).our_verdict == "holds"


def test_better_on_some_classes(by_class, tmp_path):
    shares = {"at": {"usual": 0.9, "cat": 0.5}, "trades6": {"usual": 0.7, "cat": 0.8}}
    store_by_class(by_class, tmp_path, shares)
    better = {"better": "trades6", "than": ["at"], "columns": ["NAT"], "in": "here"}
    assert judged(by_class, tmp_path, better).our_verdict == "fails"
    row = judged(by_class, tmp_path, {**better, "classes": ["cat"]})
    assert row.our_verdict == "holds"
    assert "TRADES (lambda = 6) on cat 80.00 against 50.00 (AT on cat)" in row.our_numbers
    assert "n = 100, p" in row.our_numbers
    assert judged(by_class, tmp_path, {**better, "classes": ["cat", "dog"]}).our_verdict == "fails"
    assert judged(by_class, tmp_path, {**better, "classes": "each"}).our_verdict == "fails"
    some = judged(by_class, tmp_path, {**better, "classes": "each", "any": True})
    assert some.our_verdict == "holds"
    assert "on cat 80.00" in some.our_numbers


def test_not_better_on_any_class(by_class, tmp_path):
    store_by_class(by_class, tmp_path, {"at": {"usual": 0.9}, "trades6": {"usual": 0.7}})
    some = {"better": "trades6", "than": ["at"], "columns": ["NAT"], "in": "here"}
    some |= {"classes": "each", "any": True}
    assert judged(by_class, tmp_path, some).our_verdict == "fails"
    store_by_class(by_class, tmp_path, {"trades6": {"usual": 0.7, "cat": 0.91}})
    assert judged(by_class, tmp_path, some).our_verdict == "undecided"  # one image more


def test_the_lead_is_largest_on_some_classes(by_class, tmp_path):
    shares = {"at": {"usual": 0.7, "cat": 0.3}, "trades6": {"usual": 0.75, "cat": 0.6}}
    store_by_class(by_class, tmp_path, shares)
    lead = {"better": "trades6", "than": ["at"], "columns": ["NAT"], "in": "here"}
    row = judged(by_class, tmp_path, {**lead, "most_in": ["cat"]})
    assert row.our_verdict == "holds"
    assert "TRADES (lambda = 6) minus AT on cat 30.00 against 5.00 (" in row.our_numbers
    assert "n = 100 and 900" in row.our_numbers
    # as large everywhere, or smaller there
    shares["trades6"] = {"usual": 0.75, "cat": 0.35}
    store_by_class(by_class, tmp_path, shares)
    assert judged(by_class, tmp_path, {**lead, "most_in": ["cat"]}).our_verdict == "undecided"
    shares["trades6"] = {"usual": 0.9, "cat": 0.3}
    store_by_class(by_class, tmp_path, shares)
    assert judged(by_class, tmp_path, {**lead, "most_in": ["cat"]}).our_verdict == "fails"


def test_classes_that_are_not_there(small, by_class, tmp_path):
    with pytest.raises(UserError, match="did you mean 'cat'"):
        parse(claimed({**HARDER, "harder": ["catt"]}), by_class)
    store(small, tmp_path, {"at": (0.9, 0.5)})  # digits stand in for CIFAR-10
    row = judged(small, tmp_path, HARDER)
    assert row.our_verdict == "not measured"
    assert row.our_numbers == "digits at scale ci has no class cat, dog (2 comparisons)"


# --- the images that another model gets wrong


SHARED = {"below": 50, "methods": ["trades6"], "columns": ["NAT"], "where_wrong": "at"}
SHARED |= {"in": "here"}


def test_failures_that_are_shared(small, tmp_path):
    """AT is wrong on 200 of 1000 images, TRADES on 150 of these: right on a quarter of them."""
    store(small, tmp_path, {"at": (0.8, 0.5), "trades6": (0.85, 0.5)})
    row = judged(small, tmp_path, SHARED)
    assert row.our_verdict == "holds"
    assert "TRADES (lambda = 6) where AT is wrong 25.00 [" in row.our_numbers
    assert "claimed below 50, n = 200" in row.our_numbers
    store(small, tmp_path, {"trades6": (0.96, 0.5)})
    assert judged(small, tmp_path, SHARED).our_verdict == "fails"
    store(small, tmp_path, {"trades6": (0.895, 0.5)})
    assert judged(small, tmp_path, SHARED).our_verdict == "undecided"
    store(small, tmp_path, {"at": (1.0, 0.5)})
    row = judged(small, tmp_path, SHARED)
    assert row.our_verdict == "not measured"
    assert "there is no such image for TRADES (lambda = 6) where AT is wrong" in row.our_numbers


# --- seeds and epochs


STEADY = {"deviation_below": 0.5, "methods": ["at"], "columns": ["NAT"], "in": "here"}


@pytest.mark.parametrize(
    ("seeds", "verdict", "found"),
    [
        ((0.80, 0.80, 0.80), "holds", "0.00"),
        ((0.70, 0.80, 0.90), "fails", "10.00"),
        ((0.80, 0.803, 0.809), "undecided", "0.46"),
    ],
)
def test_deviations_over_seeds(seeds, verdict, found, seeded, tmp_path):
    store(seeded, tmp_path, {"at": [(share, 0.5) for share in seeds]})
    row = judged(seeded, tmp_path, STEADY)
    assert row.our_verdict == verdict
    assert "deviation of NAT over seeds, cifar10, resnet18: AT " in row.our_numbers
    assert f"claimed below 0.5, 3 seeds, found {found} of which 1000 images " in row.our_numbers
    assert "has no deviation of" in row.published_numbers


def test_one_seed_has_no_deviation(small, tmp_path):
    store(small, tmp_path, {"at": (0.8, 0.5)})
    row = judged(small, tmp_path, STEADY)
    assert row.our_verdict == "not measured"
    assert "cvpr23_table1a at scale ci has one seed of AT" in row.our_numbers


@pytest.fixture(scope="module")
def selected(plan):
    """A table of which one row takes the best epoch, and one the last."""
    grid = copy.deepcopy(plan.grid)
    entry = {**grid["artefacts"][ARTEFACT], "methods": ["at@last", "at@validated"]}
    grid["artefacts"] = {ARTEFACT: {**entry, "columns": ["NAT"]}}
    scale = {**plan.scale, "recipe": {**plan.scale["recipe"], "epochs": 12}}
    return Plan(grid, scale, "ci")


@pytest.mark.parametrize(
    ("epoch", "verdict"), [(9, "holds"), (10, "holds"), (8, "fails"), (12, "fails")]
)
def test_the_best_epoch(epoch, verdict, selected, tmp_path):
    """Epochs 90 to 100 of 120 are 9 and 10 of 12."""
    store_epochs(selected, tmp_path, epoch)
    early = {"above": 74.9, "methods": ["at@validated"], "columns": ["best_epoch"], "in": "here"}
    late = {**early, "below": 83.4}
    late.pop("above")
    row = judged(selected, tmp_path, early, late)
    assert row.our_verdict == verdict
    assert f"AT, best epoch {100 * epoch / 12:.2f}, claimed above 74.9 %" in row.our_numbers
    assert "without an interval" in row.our_numbers


def store_epochs(plan, results, epoch):
    for run in plan.runs:
        natural = {probe.id: record(np.ones(20)) for probe in plan.evaluations[run].probes}
        write_records(paths.records(results, plan.evaluations[run].id), natural, {"checks": []})
        write_description(results, run, {"deployed_epoch": epoch}, [{"epoch": 1}])


def test_the_last_epoch_is_nobodys_choice(selected, tmp_path):
    part = {"above": 10, "methods": ["at@last"], "columns": ["best_epoch"], "in": "here"}
    store_epochs(selected, tmp_path, 12)
    row = judged(selected, tmp_path, part)
    assert row.our_verdict == "not measured"
    assert "takes the last epoch of AT, last epoch" in row.our_numbers
    chosen = {**part, "methods": ["at@validated"]}
    assert judged(selected, tmp_path, chosen).our_verdict == "holds"
    for run in selected.runs:
        paths.description(tmp_path, run).unlink()
    assert "is not built yet" in judged(selected, tmp_path, chosen).our_numbers


# --- printed numbers


def test_printed_numbers_without_a_plan_for_them(small):
    printed = Printed(Papers.read().values, small)
    with pytest.raises(MissingError, match=r"cvpr23_table5 in values\.csv has no"):
        printed(Comparison(Number("cvpr23_table5", "cifar10", "resnet18", "x", ("NAT",)), 50.0))
    number = Number("cvpr23_table4", "cifar10", "resnet18", "trades", ("APGD",))
    assert printed(Comparison(number, 31.0, "below")).one == pytest.approx(30.2)


def test_what_a_scale_leaves_out_is_printed_all_the_same(plan, on_paper):
    """Whole artefacts, or networks and columns of some; rows keep our names (trades0.25: trades)."""
    claims = read(plan)
    less = {"plusplus_table1": {"networks": ["resnet18"], "columns": ["NAT"]}}
    out = {name: "no time" for name in plan.artefacts if name not in less}
    small = Plan(plan.grid, {**plan.scale, "artefacts": less, "left_out": out}, "ci")
    assert set(small.artefacts) == set(less)
    printed = Printed(Papers.read().values, small)
    for claim in claims:
        verdict, row = Verdict(claim.tree, printed), on_paper.loc[claim.id]
        assert verdict.text("not printed") == row.published_numbers
    assert "TRADES" in on_paper.loc["trades_at_89"].published_numbers


# --- files


def test_the_command(small, tmp_path):
    store(small, tmp_path / "results", {name: (0.9, 0.5) for name in METHODS})
    grid, claims = tmp_path / "grid.yaml", tmp_path / "claims.yaml"
    grid.write_text(yaml.safe_dump(dict(small.grid)))
    claims.write_text(yaml.safe_dump(claimed(BEST)))
    words = ["--scale", "ci", "--grid", str(grid), "--claims", str(claims)]
    done = command("harness", "claims", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "reports" / "ci" / "claims.md").read_text()
    assert "stand-in data" in text
    assert "**undecided**" in text  # equal on every image
    header = (tmp_path / "reports" / "ci" / "claims.csv").read_text().splitlines()[0]
    assert header == (
        "id,claim,source,published_verdict,published_numbers,our_verdict,our_numbers,artefacts"
    )


def test_what_holds_in_part_is_counted_apart(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.95, 0.5), "at": (0.8, 0.5), "fat": (0.8, 0.5)})
    parts = [BEST, {**BEST, "in": [PLACE, f"{ARTEFACT}/cifar10/wrn32_10"]}]
    parts.append({**BEST, "in": [PLACE, f"{ARTEFACT}/cifar100/resnet18"], "than": ["at"]})
    content = {**claimed(), "claims": [claimed(part)["claims"][0] for part in parts]}
    table = judge(small, parse(content, small), tmp_path)
    text = markdown(table, "a notice")
    assert "Ours: holds where measured 2, holds 1." in text
    assert "**holds where measured (1 of 2 comparisons)**: NAT, cifar10" in text
    folder = tmp_path / "ci"
    folder.mkdir()
    table.to_csv(folder / "claims.csv", index=False)
    shown = on_page(small, folder)
    assert shown["counts"]["our"] == {
        "holds": 1,
        "holds where measured": 2,
        "fails": 0,
        "undecided": 0,
    }
    page = environment().get_template("verdicts.html.j2").render(verdicts=shown)
    assert "<b>1</b> holds, <b>2</b> holds where measured, <b>0</b> fails" in page
    assert page.count('class="verdict holds-where-measured"') == 2
    assert "holds where measured (2 of 4 comparisons)</span>" in page
    assert "has no wrn32_10 (2 comparisons)" in page


def test_the_table_counts_verdicts(on_paper):
    text = markdown(on_paper.reset_index(), "a notice")
    assert "Ours: not measured" in text
    assert text.count("\n| ") == len(on_paper) + 1
