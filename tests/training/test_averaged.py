"""The control that the papers lack: a baseline with the moving average of Generalist's model."""

import dataclasses
from fractions import Fraction

import pytest
import torch
from conftest import LINF, clocks, run_of, weights

from baselines.at import AT
from baselines.nt import NT
from generalist.generalist import Generalist
from harness.grid.plan import Plan
from harness.training.averaged import Averaged
from harness.training.learner import Average, Optim, Single

ROBUST = Single(AT(LINF), Optim(lr=0.05, weight_decay=5e-4))
NATURAL = Single(NT(), Optim(lr=0.1, weight_decay=5e-4))
DECAY = Average(0.9)


def test_it_is_theta_g_while_one_learner_has_all_the_weight(lab, batch):
    """And the training inside is the one without an average."""
    generalist = Generalist((ROBUST, NATURAL), gamma=(1.0,) * 4, c=Fraction(1), average=DECAY)
    trainings = [Averaged(ROBUST, DECAY).start(lab), generalist.start(lab), ROBUST.start(lab)]
    for clock in clocks():
        averaged, together, alone = (training.step(batch, clock) for training in trainings)
    averaged_, together_, alone_ = trainings
    assert torch.equal(weights(averaged_.deployed()), weights(together_.deployed()))
    assert torch.equal(weights(averaged_.training.deployed()), weights(alone_.deployed()))
    assert averaged == alone
    assert together["loss_at"] == alone["loss"]


def test_a_learner_with_an_average_of_its_own_is_averaged_twice(lab, batch):
    own = dataclasses.replace(ROBUST, average=Average(0.5))
    training, expected = Averaged(own, DECAY).start(lab), weights(lab.new_model())
    for clock in clocks():
        training.step(batch, clock)
        expected = 0.9 * expected + 0.1 * weights(training.training.deployed())
    torch.testing.assert_close(weights(training.deployed()), expected)


@pytest.mark.parametrize("scale", ["smoke", "lite", "paper", "ci"])
def test_every_scale_gives_the_rows_the_decay_of_theta_g(scale):
    plan = Plan.read(scale)
    rows = plan.artefacts["extra_averaged"].rows
    methods = {row.method: plan.run(row.runs[0]).method for row in rows}
    theta_g = methods["generalist_d_nt_linf"].average
    averaged = [name for name in methods if name.endswith("_averaged")]
    assert len(averaged) >= 13
    for name in averaged:
        assert methods[name] == Averaged(methods[name.removesuffix("_averaged")], theta_g)


def test_it_costs_what_the_training_inside_costs(plan):
    from harness.jobs.bill import known_rates, shape

    one, other = (run_of(plan, slug).method for slug in ("trades6", "trades6_averaged"))
    assert shape(one) == shape(other)
    assert shape(other) in known_rates()
