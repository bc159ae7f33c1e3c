"""Models that must not be believed, and records that contradict themselves, raise their flags."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import L2, LINF

from harness.attacks.balls import Ball
from harness.core.statistics import mcnemar
from harness.data import load
from harness.evaluation.probing import gradients, inspect
from harness.evaluation.records import Record
from harness.evaluation.trust import Check, record_checks
from harness.grid.plan import Plan
from harness.models.networks import new_model
from harness.training.batches import unit

PLAN = Plan.read("ci")
BALLS = {"linf": LINF.ball, "l2": L2.ball, "l1": Ball("l1", Fraction(2))}


@pytest.fixture(scope="module")
def images():
    digits = load("digits", "train").take(slice(500))
    return torch.from_numpy(digits.x), torch.from_numpy(digits.y)


@pytest.fixture(scope="module")
def taught(images):
    x, y = images[0].float() / 255, images[1]
    model = new_model("tiny", 1, 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


class Wrapped(torch.nn.Module):
    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, x):
        return self.change(self.model(x))


def failed(model, images):
    return {check.name for check in inspect(model, *images, BALLS) if not check.ok}


def test_an_honest_model_passes(taught, images):
    assert failed(taught, images) == set()


def test_a_randomised_model_is_seen(taught, images):
    noisy = Wrapped(taught, lambda z: z + torch.randn_like(z))
    assert "deterministic logits" in failed(noisy, images)


def test_probabilities_are_seen(taught, images):
    assert "logits, not probabilities" in failed(Wrapped(taught, lambda z: z.softmax(dim=1)), images)


def test_masked_gradients_are_seen(taught, images):
    masked = Wrapped(taught, lambda z: (z * 10).round() + 0 * z)
    found = failed(masked, images)
    assert "usable gradients" in found
    assert "accuracy falls with eps to about 0" in found


def test_wrong_images_without_a_gradient_are_no_masking(taught, images):
    """Where the true class ranks third, DLR is constant; such images are wrong and never attacked."""
    pixels, y = images
    ranks = taught(unit(pixels)).argsort(dim=1, descending=True)
    third = torch.arange(len(y)) % 2 == 0
    assert gradients(taught, unit(pixels), torch.where(third, ranks[:, 2], ranks[:, 0])).ok


def record(correct, backward=0, warnings=()):
    correct = np.asarray(correct, dtype=bool)
    zeros = np.zeros(len(correct), np.int16)
    return Record(correct, zeros, zeros.astype(np.int8), 1, backward, 1, 1, tuple(warnings))


def checked(named, autoattack="cascade", undefended=False, selection="last", labels=None):
    """The checks of records by the names of their columns."""
    columns = PLAN.columns.attacks("digits", "as_named", autoattack)
    probes = {column.name: column.probes[0].id for column in columns}
    records = {probes[name]: entry for name, entry in named.items()}
    return record_checks(columns, records, undefended, selection, labels)


def verdicts(named, **settings):
    return {check.name: check.ok for check in checked(named, **settings)}


MANY, FEW = np.arange(100) < 60, np.arange(100) < 40


def test_ten_steps_are_not_a_hundred():
    assert not verdicts({"PGD100": record(MANY, 10)})["PGD100 takes 100 steps"]
    assert verdicts({"PGD100": record(MANY, 100)})["PGD100 takes 100 steps"]


def test_every_name_of_a_record_is_held_to_its_steps():
    """Under the released protocol PGD20 and PGD100 are one attack of ten steps."""
    columns = PLAN.columns.attacks("digits", "released", None)
    one, other = (column for column in columns if column.name in ("PGD20", "PGD100"))
    assert one.formula == other.formula
    found = record_checks(columns, {one.probes[0].id: record(MANY, 10)}, False, None, None)
    failed = [check for check in found if not check.ok]
    names = {"PGD20 takes 20 steps", "PGD100 takes 100 steps", "PGD20_inf takes 20 steps"}
    assert {check.name for check in failed} == names
    assert [check.name for check in failed if check.touches(other)] == ["PGD100 takes 100 steps"]


def test_more_steps_must_not_be_weaker():
    columns = {"PGD20": record(FEW, 20), "PGD100": record(MANY, 100), "APGD_ce": record(FEW)}
    found = verdicts(columns)
    assert not found["PGD100 no weaker than PGD20"]
    assert found["APGD_ce no weaker than PGD100"]
    one_more = FEW | (np.arange(100) == 99)
    assert verdicts({**columns, "PGD100": record(one_more, 100)})["PGD100 no weaker than PGD20"]


def test_square_beyond_the_others():
    columns = {name: record(MANY) for name in ("APGD_ce", "APGD_t", "FAB_t")}
    hint = "no hint of masked gradients from Square"
    assert not verdicts({**columns, "Square": record(FEW)}, autoattack="components")[hint]
    assert verdicts({**columns, "Square": record(MANY)}, autoattack="components")[hint]


@pytest.mark.parametrize("name", ["AA", "AA_2"])
def test_what_only_square_breaks_in_a_cascade_is_a_hint_too(name):
    """On MNIST AutoAttack alone was asked for, and Square broke 304 that the others left."""
    plain = record(FEW)
    by_square = replace(plain, broken_by=np.where(FEW, -1, 3).astype(np.int8))
    hint = "no hint of masked gradients from Square"
    assert not verdicts({name: by_square})[hint]
    assert verdicts({name: replace(plain, broken_by=np.where(FEW, -1, 2).astype(np.int8))})[hint]


@pytest.mark.parametrize(("norm", "shown"), [("", "PGD20_inf"), ("_2", "PGD20_2")])
def test_a_pgd_far_above_autoattack_is_marked_in_each_norm(norm, shown):
    """In every column that shows this record, whatever its name."""
    checks = checked({f"PGD20{norm}": record(MANY, 20), f"AA{norm}": record(FEW)})
    (gap,) = [check for check in checks if check.name == "PGD close to AutoAttack"]
    assert not gap.ok
    assert gap.touches(PLAN.columns.resolved(shown, "digits", "as_named"))
    assert not gap.touches(PLAN.columns.resolved("PGD100", "digits", "as_named"))
    assert gap.found == f"PGD20{norm} minus AA{norm} is 20.0 points"


def test_autoattack_by_components_is_what_survives_all():
    parts = ("APGD_ce", "APGD_t", "FAB_t", "Square")
    named = {name: record(np.arange(100) < 60 - n) for n, name in enumerate(parts)}
    named["PGD20"] = record(np.arange(100) < 80, 20)
    checks = checked(named, autoattack="components")
    (gap,) = [check for check in checks if check.name == "PGD close to AutoAttack"]
    assert gap.found == "PGD20 minus AA is 23.0 points"


def test_other_flags():
    columns = {"PGD20": record(MANY, 20), "AA": record(FEW, warnings=["zero gradient"])}
    found = verdicts(columns, undefended=True, selection="paper-test")
    assert not found["the undefended model falls"]
    assert not found["PGD close to AutoAttack"]
    assert not found["checkpoint not selected on test data"]
    assert not found["AutoAttack had no warnings"]


LABELS = np.arange(100) % 10


@pytest.mark.parametrize(
    ("answers", "ok"),
    [
        (np.full(100, 3), False),  # always the same: right for a tenth, and no attack can change it
        (np.arange(100) // 50, False),  # two answers, by where the image stands
        (LABELS // 5 * 5, True),  # two answers, by what it shows
        (LABELS, True),
    ],
)
def test_answers_that_do_not_depend_on_the_image_are_seen(answers, ok):
    natural = replace(record(answers == LABELS), predicted=answers.astype(np.int16))
    assert verdicts({"NAT": natural}, labels=LABELS)["better than guessing"] is ok


def test_what_a_check_touches():
    names = ("NAT", "AA", "AA_2", "PGD20", "PGD20_inf", "true_union")
    nat, aa, aa_2, pgd, alias, union = (
        PLAN.columns.resolved(name, "digits", "as_named") for name in names
    )
    assert Check("a", False, "").touches(nat)
    of_norm = Check("a", False, "", norm="l2")
    assert of_norm.touches(aa_2)
    assert of_norm.touches(union)
    assert not of_norm.touches(aa)
    assert not Check("a", False, "", columns=("AA",)).touches(pgd)
    of_record = Check("a", False, "", probes=(pgd.probes[0].id,))
    assert of_record.touches(alias)
    assert not of_record.touches(aa)
    joined = PLAN.columns.resolved("AA", "digits", "as_named", "components")
    assert not Check("a", False, "", probes=(joined.probes[0].id,)).touches(joined)
    for check in (of_norm, of_record, Check("a", False, "b", columns=("AA",))):
        assert Check.from_json(check.as_json()) == check


def test_mcnemar_against_the_binomial():
    one, other = np.zeros(20, bool), np.zeros(20, bool)
    one[:9], other[9] = True, True  # 9 against 1: 2 (1 + 10) / 2^10
    assert mcnemar(one, other) == pytest.approx(22 / 1024)
    assert mcnemar(one, one) == 1.0
    rng = np.random.default_rng(0)
    one, other = rng.random(3000) < 0.5, rng.random(3000) < 0.52
    b, c = int((one & ~other).sum()), int((other & ~one).sum())
    whole = sum(math.comb(b + c, k) for k in range(min(b, c) + 1))
    assert mcnemar(one, other) == pytest.approx(min(1, 2 * whole / 2 ** (b + c)), rel=1e-9)
    big = np.arange(10_000) < 5_000
    assert mcnemar(big, ~big) == 1.0
