import dataclasses
from fractions import Fraction

import pytest
import torch
from conftest import LINF, clocks, run_of, weights

from baselines.at import AT
from baselines.nt import NT
from baselines.trades import TRADES
from harness.attacks.attack import Threat
from harness.attacks.balls import Ball
from harness.core.errors import UserError
from harness.models.networks import new_model
from harness.training.contracts import Batch, Clock
from harness.training.learner import Average, Optim, Schedule, Single, grown
from harness.training.weights import copy_into, mix_into

OPTIM = Optim(lr=0.05, weight_decay=5e-4)


def test_the_papers_schedule():
    schedule = Schedule()
    at = {epoch: schedule.factor(epoch / 120) for epoch in (0, 39, 40, 50, 60, 90)}
    assert at[0] == at[39] == at[40] == 1
    assert at[50] == pytest.approx(0.55)
    assert at[60] == pytest.approx(0.1)
    assert at[90] == pytest.approx(0.055)


def test_step_and_cosine_schedules():
    step = Schedule("step", ((Fraction(0), 1.0), (Fraction(75, 76), 0.1)))
    assert (step.factor(0.98), step.factor(75 / 76)) == (1, 0.1)
    assert Schedule("cosine").factor(0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Schedule("linaer"), "did you mean 'linear'"),
        (lambda: Schedule(knots=((Fraction(0), 1.0), (Fraction(40), 0.1))), "shares of the epochs"),
        (lambda: Optim(lr=0, weight_decay=0), "above 0"),
        (lambda: Optim(lr=1, weight_decay=0, algorithm="sdg"), "did you mean 'sgd'"),
        (lambda: Average(decay=1.0), r"decay in \[0, 1\)"),
    ],
)
def test_bad_settings_are_named(build, message):
    with pytest.raises(UserError, match=message):
        build()


@pytest.mark.parametrize("algorithm", ["sgd", "adam"])
def test_a_learner_learns(algorithm, lab, batch):
    optim = Optim(lr=0.05 if algorithm == "sgd" else 1e-3, weight_decay=0, algorithm=algorithm)
    learner = Single(NT(), optim).start(lab)
    losses = [learner.step(batch, clock)["loss"] for clock in clocks()]
    assert losses[-1] < losses[0]
    assert type(learner.optimizer).__name__.lower() == algorithm


def test_the_learning_rate_follows_the_schedule(lab, batch):
    learner = Single(NT(), OPTIM).start(lab)
    clock = Clock(3, 2, 4, 3)
    learner.step(batch, clock)
    used = learner.optimizer.param_groups[0]["lr"]
    assert used == pytest.approx(0.05 * Schedule().factor(11 / 12))


def test_the_weight_average_is_the_recursion(lab, batch):
    learner = Single(NT(), OPTIM, Average(0.7)).start(lab)
    expected = weights(learner.model).clone()
    for clock in clocks():
        learner.step(batch, clock)
        expected = 0.7 * expected + 0.3 * weights(learner.model)
    torch.testing.assert_close(weights(learner.deployed()), expected)
    assert int(learner.deployed().bn1.num_batches_tracked) == 0


def test_the_decay_warms_up():
    average = Average(0.999, warmup=True)
    assert average.decay_at(0) == 0.1
    assert average.decay_at(10**6) == 0.999


def test_mixing_skips_a_weight_of_zero_even_if_that_learner_is_broken(lab):
    target, one, broken = lab.new_model(), lab.new_model(), lab.new_model()
    with torch.no_grad():
        broken.linear.weight.fill_(float("nan"))
        one.linear.weight.mul_(2)
    mix_into(target, [one, broken], [1.0, 0.0], decay=0.0)
    assert torch.equal(weights(target), weights(one))
    copy_into(broken, one)
    assert torch.equal(weights(broken), weights(one))


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.999])
@pytest.mark.parametrize("shares", [(1.0,), (0.3, 0.7), (0.5, 0.2, 0.3), (0.0, 0.4, 0.6)])
def test_a_mixture_is_the_weighted_sum(lab, shares, decay):
    target, sources = lab.new_model().double(), [new_model("tiny", 1, 10, s) for s in (1, 2, 3)]
    sources = [source.double() for source in sources[: len(shares)]]
    expected = decay * weights(target)
    for share, source in zip(shares, sources, strict=True):
        expected = expected + (1 - decay) * share * weights(source)
    mix_into(target, sources, shares, decay)
    torch.testing.assert_close(weights(target), expected, rtol=1e-12, atol=1e-15)


def test_mixing_finds_tensors_that_were_replaced(lab):
    target, source = lab.new_model(), new_model("tiny", 1, 10, seed=5)
    mix_into(target, [source], [1.0], 0.5)
    target.double(), source.double()
    copy_into(target, source)
    assert torch.equal(weights(target), weights(source))


def test_a_loss_that_is_not_finite_stops_the_run(lab, batch, clock):
    learner = Single(NT(), OPTIM).start(lab)
    poisoned = Batch(batch.x * float("nan"), batch.y, batch.index)
    with pytest.raises(UserError, match="found nan for nt at epoch 1, step 1"):
        learner.step(poisoned, clock)


def trained_against(threat, lab, batch, clock):
    learner = Single(AT(threat), Optim(0.1, 0.0)).start(lab)
    learner.step(batch, clock)
    return torch.cat([p.detach().flatten() for p in learner.model.parameters()])


@pytest.mark.parametrize("learner", [AT, TRADES])
def test_a_radius_grows_in_step_with_the_run(learner):
    growing = dataclasses.replace(LINF, warmup=Fraction(1, 2))
    sizes = [
        grown(
            learner(growing, 6.0) if learner is TRADES else learner(growing), Clock(epoch, 1, 4, 2)
        ).threat
        for epoch in range(4)
    ]
    assert [threat.ball.eps / LINF.ball.eps for threat in sizes] == [Fraction(1, 2), 1, 1, 1]
    assert [threat.step / LINF.step for threat in sizes] == [Fraction(1, 2), 1, 1, 1]


def test_a_learner_meets_the_radius_of_its_step(lab, batch):
    growing = dataclasses.replace(LINF, warmup=Fraction(1, 2))
    half = Threat(Ball("linf", LINF.ball.eps / 2), LINF.step / 2, LINF.steps)
    early, late = Clock(0, 1, 4, 2), Clock(3, 0, 4, 2)
    met = {
        (t, clock): trained_against(t, lab, batch, clock)
        for t in (growing, half, LINF)
        for clock in (early, late)
    }
    assert torch.equal(met[growing, early], met[half, early])
    assert torch.equal(met[growing, late], met[LINF, late])
    assert not torch.equal(met[growing, early], met[LINF, early])


def test_a_method_that_owns_its_update_has_no_growing_radius(plan):
    run = run_of(plan, "agr")
    threat = dataclasses.replace(run.method.threat, warmup=Fraction(1, 6))
    with pytest.raises(UserError, match="a radius that does not grow for agr"):
        dataclasses.replace(run, method=dataclasses.replace(run.method, threat=threat))
