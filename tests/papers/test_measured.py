"""Claims on records with known answers."""

import copy
from dataclasses import replace

import pytest
from small_table import ARTEFACT, BEST, METHODS, PLACE, judged, record, seeded_plan, small_plan, store

from harness.core import paths
from harness.evaluation.records import write_records
from harness.grid.columns import Column, Formula
from harness.grid.plan import Plan


@pytest.fixture(scope="module")
def small(plan):
    return small_plan(plan)


@pytest.fixture(scope="module")
def seeded(plan):
    return seeded_plan(plan)


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
    assert "mean of NAT, PGD20, cifar10, resnet18: TRADES (lambda = 6) 65.00 against 60.00 (AT)" in (
        row.our_numbers
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
    assert "cvpr23_table1a at scale ci has no CW (2" in judged(small, tmp_path, mistyped).our_numbers


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
    store(small, tmp_path, {"trades6": (0.9, 0.5), "at": (0.8, 0.5), "fat": (0.8, 0.5)}, checks=[check])
    assert "‡ 3 of its numbers are touched" in judged(small, tmp_path, BEST).our_numbers
    assert "(usable gradients)" in judged(small, tmp_path, BEST).our_numbers


def test_minutes_are_compared_as_numbers(small, tmp_path):
    """Training time has no images behind it; the records say what the training took."""
    artefact = small.artefacts[ARTEFACT]
    minutes = Column("minutes", Formula("measured", ("minutes",)))
    cells = [replace(cell, meaning=minutes) for cell in artefact.cells if cell.column == "NAT"]
    plan = copy.copy(small)
    plan.artefacts = {ARTEFACT: replace(artefact, cells=tuple(cells))}
    for seconds, cell in zip((60, 120, 300, 180), cells, strict=True):
        evaluation = plan.evaluations[cell.runs[0]]
        records = {probe.id: record([True]) for probe in evaluation.probes}
        about = {"checks": [], "trained": {"seconds": seconds}}
        write_records(paths.records(tmp_path, evaluation.id), records, about)
    order = {"order": ["at", "fat", "trades6"], "columns": ["minutes"], "lower": True, "in": "here"}
    row = judged(plan, tmp_path, order)
    assert row.our_verdict == "holds"
    assert (
        "AT 2.00 against 3.00 (FAT), difference -1.00 minutes, without an interval" in row.our_numbers
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
    store(small, tmp_path, {m: (x, 0.1) for m, x in zip(METHODS, (0.9, 0.5, 0.7, 0.8), strict=True)})
    assert judged(small, tmp_path, {**PEAK, "lower": True}).our_verdict == "holds"
    assert judged(small, tmp_path, PEAK).our_verdict == "fails"


def test_a_peak_that_may_be_where_nothing_was_measured(small, tmp_path):
    shares = {"nt": 0.5, "trades6": 0.6, "fat": 0.8}  # AT's is not there, and might be the peak
    store(small, tmp_path, {method: (share, 0.1) for method, share in shares.items()})
    assert judged(small, tmp_path, PEAK).our_verdict == "undecided"
    nowhere = {**PEAK, "peak": "generalist_t~*", "in": ["plusplus_fig5/cifar10/resnet18"]}
    assert judged(small, tmp_path, nowhere).our_verdict == "not measured"
