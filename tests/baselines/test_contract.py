"""What every registered method must keep, on digits: one test for all of them."""

import re
from fractions import Fraction

import pytest
import torch
from conftest import clocks, run_of, weights

from generalist import METHODS
from harness.attacks.attack import ORDERS
from harness.attacks.balls import Ball
from harness.core.config import read_grid
from harness.core.paths import canonical
from harness.grid.plan import Plan
from harness.models.networks import ResNet
from harness.training.batches import Batches
from harness.training.train import make_lab, train

GRID = read_grid()
FRACTION = re.compile(r"-?\d+(/\d+)?")


def kind(description):
    """A run's description without its numbers: ablations differ in nothing else."""
    if isinstance(description, dict):
        return tuple((key, kind(entry)) for key, entry in sorted(description.items()))
    if isinstance(description, list):
        return tuple(map(kind, description))
    number = isinstance(description, int | float) and not isinstance(description, bool)
    return None if number or FRACTION.fullmatch(str(description)) else description


WRAPPED = ("at_averaged", "ramp_averaged")  # others differ in what is inside
WRAPPED += ("statistics_generalist_d_nt_linf", "statistics_generalist_d_nt_linf_attacked")
EVERY = sorted(
    slug
    for slug, entry in GRID["methods"].items()
    if entry["method"] not in ("averaged", "statistics") or slug in WRAPPED
)
# Learners side by side have the bits of those in turn: tests/generalist/test_parallel.py.
RUNS = {
    slug: run_of(Plan.read("ci"), slug)
    for slug in reversed(EVERY)
    if not GRID["methods"][slug].get("parallel")
}
KINDS = {(kind(canonical(run.method)), len(run.parents)): slug for slug, run in RUNS.items()}
SLUGS = sorted(KINDS.values())
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def results(plan, tmp_path_factory):
    """A results folder that has every trained model that some method starts from."""
    folder = tmp_path_factory.mktemp("parents")
    for parent in {parent for slug in SLUGS for parent in run_of(plan, slug).parents}:
        train(plan.run(parent), folder, CPU)
    return folder


def start(plan, slug, results, seed=0):
    run = run_of(plan, slug, seed=seed)
    return run, run.method.start(make_lab(run, results, CPU))


def advance(run, training, from_step, to_step):
    batches = Batches(run, CPU)
    reported = []
    for clock in clocks(run.recipe.epochs, batches.steps_per_epoch)[from_step:to_step]:
        batch = batches.at(batches.order(clock.epoch), clock.epoch, clock.step)
        reported.append(training.step(batch, clock))
    return reported


def test_every_registered_method_is_in_the_grid():
    assert {entry["method"] for entry in GRID["methods"].values()} == set(METHODS)


@pytest.mark.parametrize("slug", SLUGS)
def test_contract(plan, slug, results, tmp_path):
    run, training = start(plan, slug, results)
    before = weights(training.deployed()).clone()
    reported = advance(run, training, 0, 5)
    after_five = weights(training.deployed()).clone()
    assert all(torch.isfinite(torch.tensor(list(row.values()))).all() for row in reported)
    assert not torch.equal(weights(training.deployed()), before)
    assert torch.isfinite(weights(training.deployed())).all()
    with torch.no_grad():
        assert training.deployed().eval()(torch.rand(3, 1, 8, 8)).shape == (3, 10)

    torch.save(training.state_dict(), tmp_path / "state.pt")
    advance(run, training, 5, 8)
    _, resumed = start(plan, slug, results)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    advance(run, resumed, 5, 8)
    assert torch.equal(weights(training.deployed()), weights(resumed.deployed()))

    _, again = start(plan, slug, results)
    advance(run, again, 0, 8)
    assert torch.equal(weights(training.deployed()), weights(again.deployed()))
    other_run, other = start(plan, slug, results, seed=1)
    advance(other_run, other, 0, 5)
    assert not torch.equal(after_five, weights(other.deployed()))


def balls_in(description) -> list[Ball]:
    """Every ball that a run's description mentions."""
    if isinstance(description, list):
        return [ball for entry in description for ball in balls_in(entry)]
    if not isinstance(description, dict):
        return []
    if description.get("class") == "Ball":
        return [Ball(description["norm"], Fraction(description["eps"]))]
    return [ball for entry in description.values() for ball in balls_in(entry)]


def has_a_loss(slug):
    """IAT mixes images; statistics have no loss that is minimised."""
    return slug != "iat" and GRID["methods"][slug]["method"] != "statistics"


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if has_a_loss(slug)])
def test_the_loss_sees_only_images_within_the_budget(plan, slug, results):
    run, training = start(plan, slug, results)
    batches, seen = Batches(run, CPU), []

    def record(module, inputs):
        learning = any(parameter.requires_grad for parameter in module.parameters())
        if isinstance(module, ResNet) and torch.is_grad_enabled() and learning:
            seen.append(inputs[0].detach())

    balls = balls_in(canonical(run.method))
    clock = clocks(3, batches.steps_per_epoch)[-1]  # late, when every method has left its warm-up
    batch = batches.at(batches.order(0), 0, 0)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(record)
    try:
        training.step(batch, clock)
    finally:
        hook.remove()
    assert seen
    for images in seen:
        difference = (images - batch.x).flatten(1)
        within = difference.abs().amax(dim=1) == 0
        for ball in balls:
            within |= difference.norm(p=ORDERS[ball.norm], dim=1) <= ball.radius + 1e-5
        assert within.all()
        assert images.min() >= 0
        assert images.max() <= 1
    assert slug == "nt" or any(not torch.equal(images, batch.x) for images in seen)


OFFICIAL = [s for s in SLUGS if GRID["methods"][s]["method"] in GRID["presets"]["official"]]


@pytest.mark.parametrize("slug", OFFICIAL)
def test_the_official_recipe_trains_too(plan, slug, results):
    run, training = start(plan, f"{slug}@official", results)
    assert run.id != run_of(plan, slug).id
    before = weights(training.deployed()).clone()
    advance(run, training, 0, 2)  # two steps: some schedules start at a learning rate of 0
    assert torch.isfinite(weights(training.deployed())).all()
    if slug != "rmc":  # after two steps it may still deploy one of its ends
        assert not torch.equal(weights(training.deployed()), before)


@pytest.mark.parametrize("slug", EVERY)
def test_slugs_are_the_grids(plan, slug):
    own = run_of(plan, slug).method.slug
    assert slug.startswith(own) or own.startswith(slug)
