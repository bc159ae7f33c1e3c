"""Claims: what becomes of them on printed numbers and on records with known answers."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import yaml
from conftest import ROOT, command

from harness import paths
from harness.claims import Reader, markdown, read, runs, verdicts
from harness.columns import Formula
from harness.config import read_claims
from harness.errors import UserError
from harness.evidence import Measured, Printed
from harness.plan import Plan
from harness.records import Record, write_records
from harness.verdicts import Comparison, Every, Number, Outcome, Some, judge, leaves

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
    claims = Reader(claimed(*parts), plan).claims()
    return verdicts(plan, claims, results).iloc[0]


BEST = {"better": "trades6", "than": "others", "columns": ["NAT"], "in": "here"}


# --- reading


def test_a_group_a_pattern_and_a_mean(small):
    parts = [
        {**BEST, "columns": [["NAT", "PGD20"]]},
        {"better": "at", "than": "*t", "columns": ["NAT"], "in": [PLACE]},
    ]
    (claim,) = Reader(claimed(*parts), small).claims()
    pairs = [(c.one.method, c.other.method) for c in leaves(claim.tree)]
    assert pairs == [("trades6", "at"), ("trades6", "fat"), ("at", "nt"), ("at", "fat")]
    assert next(leaves(claim.tree)).one.columns == ("NAT", "PGD20")
    assert claim.artefacts == [ARTEFACT]
    assert set(runs(small, [claim])) == set(small.runs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("in", ["cvpr23_table1a"]), "a place artefact/data set/network"),
        (("columns", "NAT"), "a list of columns"),
        (("better", 3), "a method, a group"),
        (("then", "at"), "one of better"),
    ],
)
def test_a_mistake_in_the_claims(change, message, tmp_path):
    content = claimed({**BEST, change[0]: change[1]})
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=message):
        read_claims(path)


def test_unknown_places_are_named(small):
    with pytest.raises(UserError, match="did you mean 'here'"):
        Reader(claimed({**BEST, "in": "heer"}), small).claims()


# --- logic


def outcomes(**gains):
    """Comparisons by the name of their method, and a judge that knows their gains."""
    tree = {name: Comparison(Number("t", "d", "n", name, ("c",)), 0.0) for name in gains}
    return tree, lambda comparison: Outcome(gains[comparison.one.method], comparison.one.method)


def test_every_and_some():
    tree, compare = outcomes(up=1.0, down=-1.0)
    up, down = tree["up"], tree["down"]
    assert judge(Every((up, up)), compare).true is True
    assert judge(Every((up, down)), compare).true is False
    assert judge(Some((up, down)), compare).true is True
    assert judge(Every((Some((down, down)), up)), compare).true is False


def test_what_is_missing_leaves_a_claim_open_unless_it_fails_anyway():
    tree, compare = outcomes(up=1.0, down=-1.0, gone=0.0)

    def lacking(comparison):
        found = compare(comparison)
        return replace(found, missing=True) if comparison is tree["gone"] else found

    verdict = judge(Every((tree["up"], tree["gone"])), lacking)
    assert (verdict.true, verdict.missing, verdict.numbers) == (None, True, "gone")
    assert judge(Every((tree["down"], tree["gone"])), lacking).true is False


# --- on printed numbers


@pytest.fixture(scope="module")
def on_paper(plan):
    return verdicts(plan, read(plan), ROOT / "nowhere").set_index("id")


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
    ],
)
def test_published_verdicts(claim, verdict, numbers, on_paper):
    row = on_paper.loc[claim]
    assert row.published_verdict == verdict
    assert numbers in row.published_numbers


def test_every_claim_has_a_verdict_with_numbers_on_both_sides(on_paper):
    assert len(on_paper) >= 25
    assert on_paper.index.is_unique
    assert set(on_paper.published_verdict) == {"holds", "fails", "no number"}
    assert set(on_paper.our_verdict) == {"not measured"}  # there is no record at all
    assert (on_paper.published_numbers != "").all()
    assert (on_paper.our_numbers != "").all()


def test_claims_name_rows_that_their_tables_have(plan):
    """A mistyped row would never be measured: of a planned artefact every number must be found."""
    claims = read(plan)
    numbers = [number for claim in claims for number in claim.numbers]
    planned = [number for number in numbers if number.artefact in plan.artefacts]
    assert planned
    measured = Measured(plan, ROOT / "nowhere", planned)
    for number in planned:
        assert "not built yet" in measured(Comparison(number, 50.0)).text


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


def test_seeds_that_disagree_decide_nothing(small, tmp_path):
    grid = copy.deepcopy(small.grid)
    grid["artefacts"][ARTEFACT]["seeds"] = 3
    plan = Plan(grid, {**small.scale, "seeds": [0, 1, 2]}, "ci")
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
    assert "has no CW of trades6" in judged(small, tmp_path, mistyped).our_numbers


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


def test_printed_numbers_without_a_plan_for_them(small):
    outcome = Printed(small)(
        Comparison(Number("cvpr23_table5", "cifar10", "resnet18", "x", ("NAT",)), 50.0)
    )
    assert outcome.missing
    number = Number("cvpr23_table4", "cifar10", "resnet18", "trades", ("APGD",))
    assert Printed(small)(Comparison(number, 31.0, lower=True)).gain == pytest.approx(0.8)


def test_what_a_scale_leaves_out_is_printed_all_the_same(plan, on_paper):
    """Whole artefacts, or networks and columns of some; rows keep our names (trades0.25: trades)."""
    claims = read(plan)
    less = {"plusplus_table1": {"networks": ["resnet18"], "columns": ["NAT"]}}
    out = {name: "no time" for name in plan.artefacts if name not in less}
    small = Plan(plan.grid, {**plan.scale, "artefacts": less, "left_out": out}, "ci")
    assert set(small.artefacts) == set(less)
    printed = Printed(small)
    for claim in claims:
        verdict, row = judge(claim.tree, printed), on_paper.loc[claim.id]
        assert verdict.numbers == row.published_numbers
    assert "TRADES" in on_paper.loc["trades_at_89"].published_numbers


# --- files


def test_the_command(small, tmp_path):
    store(small, tmp_path / "results", {name: (0.9, 0.5) for name in METHODS})
    grid, claims = tmp_path / "grid.yaml", tmp_path / "claims.yaml"
    grid.write_text(yaml.safe_dump(dict(small.grid)))
    claims.write_text(yaml.safe_dump(claimed(BEST)))
    words = ["--scale", "ci", "--grid", str(grid), "--claims", str(claims)]
    done = command("harness.claims", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "reports" / "ci" / "claims.md").read_text()
    assert "stand-in data" in text
    assert "**undecided**" in text  # equal on every image
    header = (tmp_path / "reports" / "ci" / "claims.csv").read_text().splitlines()[0]
    assert header == (
        "id,claim,source,published_verdict,published_numbers,our_verdict,our_numbers,artefacts"
    )


def test_the_table_counts_verdicts(on_paper):
    text = markdown(on_paper.reset_index(), "a notice")
    assert "Ours: not measured" in text
    assert text.count("\n| ") == len(on_paper) + 1
