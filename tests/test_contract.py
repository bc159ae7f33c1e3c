"""What every registered method must keep, on digits: one test for all of them."""

import pytest
import torch
from conftest import clocks, run_of, weights

from generalist import METHODS
from harness.config import read_grid
from harness.train import Batches, make_lab

GRID = read_grid()
SLUGS = sorted(GRID["methods"])
CPU = torch.device("cpu")


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
def test_contract(plan, slug, tmp_path):
    run, training = start(plan, slug, tmp_path)
    before = weights(training.deployed()).clone()
    reported = advance(run, training, 0, 5)
    assert all(torch.isfinite(torch.tensor(list(row.values()))).all() for row in reported)
    assert not torch.equal(weights(training.deployed()), before)
    assert torch.isfinite(weights(training.deployed())).all()
    with torch.no_grad():
        assert training.deployed().eval()(torch.rand(3, 1, 8, 8)).shape == (3, 10)

    torch.save(training.state_dict(), tmp_path / "state.pt")
    advance(run, training, 5, 8)
    _, resumed = start(plan, slug, tmp_path)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    advance(run, resumed, 5, 8)
    assert torch.equal(weights(training.deployed()), weights(resumed.deployed()))

    _, again = start(plan, slug, tmp_path)
    advance(run, again, 0, 8)
    assert torch.equal(weights(training.deployed()), weights(again.deployed()))
    other_run, other = start(plan, slug, tmp_path, seed=1)
    advance(other_run, other, 0, 8)
    assert not torch.equal(weights(training.deployed()), weights(other.deployed()))


@pytest.mark.parametrize("slug", SLUGS)
def test_slugs_are_the_grids(plan, slug):
    assert slug.startswith(plan.train_run(slug, "cifar10", "resnet18", 0).method.slug)
