"""Passes and hours before anyone spends them."""

import dataclasses
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from conftest import L2, LINF, ROOT, run_of

from baselines.at import AT
from baselines.fat import FAT
from baselines.nt import NT
from baselines.trades import TRADES
from generalist.generalist import Generalist
from harness.attacks.attack import Threat
from harness.attacks.autoattack import Component
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.core.config import scales
from harness.data import count
from harness.evaluation.probing import evaluate_batch
from harness.grid.plan import Plan
from harness.grid.probes import EvalRun, Probe
from harness.jobs.bill import (
    Work,
    of_attack,
    of_evaluation,
    of_training,
    read_rates,
    rows,
    shape,
    text,
)
from harness.jobs.meter import operations, rate, seconds
from harness.models.networks import new_model
from harness.training.learner import Optim, Single

OPTIM = Optim(lr=0.05, weight_decay=5e-4)
LINF_7 = Threat(LINF.ball, LINF.step, 7)


@pytest.mark.parametrize(
    ("objective", "work"),
    [
        (NT(), Work(learns=1)),
        (AT(LINF), Work(climbs=3, learns=1)),
        (AT(LINF_7), Work(climbs=7, learns=1)),
        (TRADES(LINF_7, beta=6.0), Work(looks=2, climbs=7, learns=2)),
    ],
)
def test_passes_of_a_step(objective, work):
    found = rate(Single(objective, OPTIM), parents=0)
    assert found.step == work
    assert not found.at_most
    assert (found.step.forward, found.step.backward) == (sum(work.parts), work.climbs + work.learns)


def test_an_attack_that_lets_fooled_images_go_is_billed_in_full_and_says_so():
    found = rate(Single(FAT(LINF_7), OPTIM), parents=0)
    assert found.step == Work(climbs=7, learns=1)
    assert found.at_most


def test_generalist_costs_its_learners_in_one_process_or_many():
    learners = [Single(objective, OPTIM) for objective in (AT(LINF_7), NT(), AT(L2))]
    together = Generalist(tuple(learners), shares=(0.5, 0.5), parallel=True)
    found = rate(together, parents=0).step
    assert found == sum((rate(learner, 0).step for learner in learners), Work())
    assert shape(together) == shape(together.serial)


def test_what_changes_no_pass_changes_no_shape():
    one = Single(TRADES(LINF, beta=6.0), OPTIM)
    other = Single(TRADES(Threat(Ball("linf", Fraction(1, 9)), LINF.step, 3), beta=1.0), OPTIM)
    assert shape(one) == shape(dataclasses.replace(other, optim=Optim(0.1, 0.0)))
    assert shape(one) != shape(Single(TRADES(LINF_7, beta=6.0), OPTIM))


def unbreakable() -> torch.nn.Module:
    model = new_model("tiny", channels=1, num_classes=10, seed=0).eval()
    with torch.no_grad():
        model.linear.bias[0] += 20
    return model


BALL = Ball("linf", Fraction(8, 255))
CHECKS = 20  # looks that AutoAttack takes to inspect the network


@pytest.mark.parametrize(
    ("attack", "uncounted"),
    [(PGD(BALL, Fraction(2, 255), 5), 0)]
    + [
        (Component(BALL, name, steps=6, targets=3, queries=30), CHECKS)
        for name in ("apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square")
    ],
)
def test_passes_of_an_attack(attack, uncounted):
    x, y = torch.rand(3, 1, 8, 8), torch.zeros(3, dtype=torch.long)
    probe = Probe("digits", 3, attack, batch_size=3)
    record = evaluate_batch(unbreakable(), probe, x, y, torch.Generator().manual_seed(0))
    work = of_evaluation(EvalRun("none", (probe,)))
    assert record.backward_examples == work.backward
    assert 0 <= record.forward_examples - work.forward <= uncounted * len(x)


def test_no_more_targets_than_other_classes():
    attack = Component(BALL, "apgd-t", steps=10, targets=9)
    assert of_attack(attack, classes=4).climbs == 3 * 11


def test_the_longest_of_a_family_of_pgds_pays_for_all():
    probes = [Probe("digits", 10, PGD(BALL, Fraction(1, 255), k), 10) for k in (20, 100)]
    natural = Probe("digits", 10, None, 10)
    assert of_evaluation(EvalRun("none", (*probes, natural))) == Work(looks=30, climbs=1000)


def test_a_run_is_its_step_times_its_images_and_epochs(plan):
    run = run_of(plan, "at")
    own = rate(run.method, parents=0)
    assert of_training(run, own) == own.step * (256 * 3)


def test_counts_need_no_data():
    splits = ("train", "validation", "train+validation", "test")
    assert [count("cifar10", split) for split in splits] == [49_000, 1_000, 50_000, 10_000]
    assert count("digits", "train") == 1168


@pytest.mark.parametrize("scale", scales())
def test_every_method_of_the_grid_has_been_measured(scale):
    """If not: python -m harness meter."""
    plan = Plan.read(scale)
    found = rows(plan, read_rates(), None)
    assert sum(row.models for row in found.values()) == len(plan.runs)
    assert f"{len(plan.runs)} models" in text(plan, found, None)


@pytest.mark.parametrize("slug", ["at", "trades6", "generalist_t", "fat"])
def test_the_measured_passes_are_still_right(plan, slug):
    method = run_of(plan, slug).method
    assert read_rates()[shape(method)] == rate(method, parents=0)


@pytest.mark.parametrize("option", ["--no-calibration", "--runs"])
def test_without_calibration_no_torch(option):
    code = (
        f"import sys; sys.argv = ['plan', '--scale', 'paper', '{option}']; import harness.jobs.plan; "
        "harness.jobs.plan.main(); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert "models, " in done.stdout


def test_operations_of_resnet18():
    """0.56 G multiply-adds a look, which the papers of the architecture give too."""
    run = run_of(Plan.read("paper"), "at")
    price = operations(run)
    assert price.looks / 2 == pytest.approx(0.56e9, rel=0.02)
    assert price.climbs == pytest.approx(2 * price.looks, rel=0.02)
    assert price.learns == pytest.approx(3 * price.looks, rel=0.02)


def test_seconds_are_measured(plan):
    price = seconds(run_of(plan, "at"), torch.device("cpu"), budget=0.5)
    assert (
        min(price.looks, price.climbs, price.learns) > 0
    )  # their order is noise on a busy machine
