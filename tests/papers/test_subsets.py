"""Claims on some classes or images, on the deviation over seeds and on the best epoch."""

import copy

import numpy as np
import pytest
from small_table import ARTEFACT, claimed, judged, record, seeded_plan, small_plan, store

from harness.core import paths
from harness.core.errors import UserError
from harness.core.paths import write_description
from harness.evaluation.records import write_records
from harness.grid.plan import Plan
from harness.papers.claims import parse


@pytest.fixture(scope="module")
def small(plan):
    return small_plan(plan)


@pytest.fixture(scope="module")
def seeded(plan):
    return seeded_plan(plan)


@pytest.fixture(scope="module")
def by_class(small):
    """The small table on CIFAR-10 itself, whose classes have names."""
    return Plan(small.grid, {**small.scale, "datasets": {}}, "ci")


CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def store_by_class(plan, results, accuracies, each=100):
    """Records by class: method -> class -> natural accuracy; `usual` is that of the other classes."""
    labels = np.repeat(np.arange(10, dtype=np.int16), each)
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
