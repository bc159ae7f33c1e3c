import dataclasses
from fractions import Fraction

import pytest
import torch
from conftest import L2, LINF, clocks, weights

from baselines.at import AT
from baselines.nt import NT
from generalist.gamma import gamma_at, weights_at
from generalist.generalist import Generalist
from harness.core.errors import UserError
from harness.training.contracts import Clock
from harness.training.learner import Average, Optim, Single

ROBUST = Single(AT(LINF), Optim(lr=0.05, weight_decay=5e-4))
ROBUST_2 = Single(AT(L2), Optim(lr=0.05, weight_decay=5e-4))
NATURAL = Single(NT(), Optim(lr=0.1, weight_decay=5e-4))
NEVER = Fraction(1)


def trained(method, lab, batch):
    training = method.start(lab)
    for clock in clocks():
        training.step(batch, clock)
    return training


@pytest.mark.parametrize(("gamma", "number"), [((1.0,) * 4, 0), ((0.0,) * 4, 1)])
def test_all_weight_on_one_learner_is_that_learners_average(gamma, number, lab, batch):
    pair, decay = (ROBUST, NATURAL), Average(0.9)
    generalist = Generalist(pair, gamma=gamma, c=NEVER, average=decay)
    alone = dataclasses.replace(pair[number], average=decay)
    expected = trained(alone, lab, batch).deployed()
    assert torch.equal(weights(trained(generalist, lab, batch).deployed()), weights(expected))


def test_a_third_learner_without_weight_changes_nothing(lab, batch):
    two = Generalist((ROBUST, NATURAL), gamma=(0.5,) * 4, t_prime=Fraction(0), c=Fraction(1, 4))
    three = dataclasses.replace(two, learners=(ROBUST, NATURAL, ROBUST_2), shares=(1.0, 0.0))
    one, other = (trained(method, lab, batch).deployed() for method in (two, three))
    assert torch.equal(weights(one), weights(other))


def test_equal_learners_are_single_training_with_an_average(lab, batch):
    both = Generalist((NATURAL, NATURAL), gamma=(0.5,) * 4, c=NEVER, average=Average(0.9))
    alone = dataclasses.replace(NATURAL, average=Average(0.9))
    one, other = trained(both, lab, batch), trained(alone, lab, batch)
    torch.testing.assert_close(weights(one.deployed()), weights(other.deployed()))


def test_no_redistribution_leaves_the_learners_alone(lab, batch):
    generalist = trained(Generalist((ROBUST, NATURAL), c=NEVER), lab, batch)
    for number, single in enumerate((ROBUST, NATURAL)):
        alone = trained(single, lab, batch)
        assert torch.equal(weights(generalist.learners[number].model), weights(alone.model))


@pytest.mark.parametrize("overwrites", ["learners", "averages"])
def test_what_a_redistribution_overwrites(overwrites, lab, batch):
    averaged = dataclasses.replace(ROBUST, average=Average(0.9))
    generalist = Generalist(
        (averaged, NATURAL), t_prime=Fraction(0), c=Fraction(1, 4), overwrites=overwrites
    )
    training = generalist.start(lab)
    for clock in clocks()[:3]:
        training.step(batch, clock)
    average = weights(training.learners[0].averaged)
    before = [weights(learner.model) for learner in training.learners]
    training._redistribute()
    for learner, old in zip(training.learners, before, strict=True):
        assert not torch.equal(old, weights(training.theta_g))
        assert torch.equal(weights(learner.model), weights(training.theta_g))
        assert learner.optimizer.state  # momentum survives
    kept = torch.equal(weights(training.learners[0].averaged), average)
    assert kept == (overwrites == "learners")


def test_until_t_prime_the_learners_are_the_baselines_own_trainings(lab, batch):
    """Whatever their place in the list, and with a third one beside them."""
    lists = [(ROBUST, NATURAL), (NATURAL, ROBUST), (ROBUST_2, NATURAL, ROBUST)]
    for learners in lists:
        shares = {2: (1.0,), 3: (0.5, 0.5)}[len(learners)]
        training = Generalist(learners, shares=shares).start(lab)
        alone = [single.start(lab) for single in learners]
        for clock in clocks(24, 1)[:15]:  # t' is 15 of 24
            training.step(batch, clock)
            for learner in alone:
                learner.step(batch, clock)
        for learner, other in zip(training.learners, alone, strict=True):
            assert torch.equal(weights(learner.model), weights(other.model))


def test_learners_are_overwritten_before_the_next_step_and_can_be_seen_until_then(lab, batch):
    generalist = Generalist((ROBUST, NATURAL), t_prime=Fraction(0), c=Fraction(1, 4))
    training = generalist.start(lab)
    for clock in clocks()[:3]:
        training.step(batch, clock)
    one, other = (weights(network) for network in training.networks().values())
    assert not torch.equal(one, other)  # though a redistribution is due
    assert generalist.redistributes_before(clocks()[3])


def test_the_released_method_from_its_loop(lab, batch):
    """The authors' loop, written plainly: one epoch clock, averages that survive, every minibatch."""
    average = Average(0.9, warmup=True)
    learners = [dataclasses.replace(single, average=average) for single in (ROBUST, NATURAL)]
    method = Generalist(
        tuple(learners),
        gamma=(1, 1, 1, 0.4),
        average=average,
        redistribution="throughout",
        clock="epoch",
        shared_lr=True,
    )
    exact = dataclasses.replace(lab, new_model=lambda: lab.new_model().double())
    batch = dataclasses.replace(batch, x=batch.x.double())
    training = method.start(exact)
    raw = [single.start(exact) for single in (ROBUST, NATURAL)]
    averages, theta_g = [exact.new_model() for _ in raw], exact.new_model()
    for epoch in range(1, 121):  # of one minibatch
        clock, decay = Clock(epoch - 1, 0, 120, 1), min(0.9, epoch / (epoch + 9))
        training.step(batch, clock)
        gamma = gamma_at((1, 1, 1, 0.4), epoch / 120)
        for learner, average in zip(raw, averages, strict=True):
            learner.step(batch, clock, 0.05 * ROBUST.optim.schedule.factor(epoch / 120))
            assign(average, decay * weights(average) + (1 - decay) * weights(learner.model))
        mixed = gamma * weights(averages[0]) + (1 - gamma) * weights(averages[1])
        assign(theta_g, decay * weights(theta_g) + (1 - decay) * mixed)
        if epoch >= 75 and epoch % 5 == 0:
            for learner in raw:
                assign(learner.model, weights(theta_g))
    torch.testing.assert_close(weights(training.theta_g), weights(theta_g), rtol=0, atol=1e-9)


def assign(network: torch.nn.Module, values: torch.Tensor) -> None:
    """The counterpart of `weights`."""
    own = [t for t in network.state_dict().values() if t.is_floating_point()]
    for tensor, part in zip(own, values.split([t.numel() for t in own]), strict=True):
        tensor.copy_(part.view_as(tensor))


def test_without_ema_the_global_learner_is_the_mixture(lab, batch):
    method = Generalist((ROBUST, NATURAL), gamma=(0.25,) * 4, c=NEVER, average=Average(0.0))
    training = trained(method, lab, batch)
    one, other = (weights(learner.model) for learner in training.learners)
    torch.testing.assert_close(weights(training.theta_g), 0.25 * one + 0.75 * other)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_before_gamma_falls_the_other_learners_leave_nothing_but_momentum(momentum, lab, batch):
    """With (1, 1, 1, 0) what overwrites them at t' and at 2/3 of the run is all the first learner's."""
    other = dataclasses.replace(NATURAL, optim=dataclasses.replace(NATURAL.optim, momentum=momentum))
    generalist = Generalist((ROBUST, other), average=Average(0.9))
    found = []
    for lessons in (True, False):
        training = generalist.start(lab)
        for clock in clocks(24, 1):
            training.step(batch, clock)
            if not lessons and clock.epoch < 14:  # t' is 15 of 24: unlearn all of it again
                training.learners[1].model.load_state_dict(lab.new_model().state_dict())
        found.append(weights(training.deployed()))
    assert torch.equal(*found) == (momentum == 0)


def redistributions(generalist: Generalist, epochs: int, steps: int) -> list[int]:
    done = []
    for clock in clocks(epochs, steps):
        if generalist.redistributes_before(clock):
            done.append(clock.steps_done)
    return done


def test_the_text_redistributes_at_the_end_of_every_fifth_epoch_from_75():
    found = redistributions(Generalist((ROBUST, NATURAL)), epochs=120, steps=4)
    assert found == [4 * epoch for epoch in range(75, 120, 5)]  # at 120 nothing comes after it


def test_the_released_code_does_so_after_every_minibatch_of_those_epochs():
    released = Generalist((ROBUST, NATURAL), redistribution="throughout")
    found = redistributions(released, epochs=120, steps=4)
    ends = [4 * (epoch - 1) + step for epoch in range(75, 121, 5) for step in (1, 2, 3, 4)]
    assert found == ends[:-1]  # after the very last step nothing comes


def test_a_smaller_budget_keeps_the_proportions():
    found = redistributions(Generalist((ROBUST, NATURAL)), epochs=16, steps=19)
    assert len(found) == 9
    assert found[0] == 190
    assert found[-1] == 291
    # smoke: t' is 142.5 of 228 steps, the first multiple of c that is not before it step 142
    found = redistributions(Generalist((ROBUST, NATURAL)), epochs=12, steps=19)
    assert found == [142, 152, 162, 171, 180, 190, 200, 209, 218]
    released = Generalist((ROBUST, NATURAL), redistribution="throughout")
    # of 24 epochs a fifth of each, from the 15th on
    found = redistributions(released, epochs=24, steps=125)
    ends = [step for end in range(1875, 3001, 125) for step in range(end - 24, end + 1)]
    assert found == ends[:-1]


def test_gamma_is_piecewise_linear_over_thirds():
    assert [gamma_at((1, 1, 1, 0), t / 6) for t in range(7)] == pytest.approx([1, 1, 1, 1, 1, 0.5, 0])
    assert weights_at((0.6,) * 4, (0.5, 0.5), 0.3) == pytest.approx((0.6, 0.2, 0.2))


def test_weights_sum_to_one_for_any_number_of_learners():
    generalist = Generalist((ROBUST, NATURAL, ROBUST_2, NATURAL), shares=(0.2, 0.3, 0.5))
    for clock in clocks(9, 3):
        assert sum(generalist.weights_at(clock)) == pytest.approx(1)


def test_a_shared_learning_rate_is_the_first_learners(lab, batch, clock):
    training = Generalist((ROBUST, NATURAL), shared_lr=True).start(lab)
    training.step(batch, clock)
    assert [learner.optimizer.param_groups[0]["lr"] for learner in training.learners] == [0.05, 0.05]


def test_presets(plan):
    text = plan.train_run("generalist_d_nt_linf", "cifar10", "resnet18", 0)
    released = plan.train_run("generalist_d_nt_linf@released", "cifar10", "resnet18", 0)
    assert text.method.gamma == (1, 1, 1, 0)
    assert text.method.redistribution == "once"
    assert not text.method.shared_lr
    assert [learner.average for learner in text.method.learners] == [None, None]
    assert text.selection.use == "last"
    assert released.method.gamma == (1, 1, 1, 0.4)
    assert released.method.redistribution == "throughout"
    assert released.method.shared_lr
    assert (text.method.clock, released.method.clock) == ("step", "epoch")
    assert released.method.overwrites == "learners"
    assert released.method.average.warmup
    assert all(learner.average.warmup for learner in released.method.learners)
    assert released.method.learners[0].objective.threat.ball.eps == Fraction("0.14")
    assert released.method.learners[0].optim.schedule.knots[2] == (Fraction(80, 120), 0.1)
    assert (released.selection.use, released.selection.gate) == ("paper-test", 0.88)


@pytest.mark.parametrize(
    ("learners", "slug"),
    [
        ((ROBUST, NATURAL), "generalist_d_nt_linf"),
        ((ROBUST, ROBUST_2), "generalist_d_linf_l2"),
        ((ROBUST_2, NATURAL), "generalist_d_nt_l2"),
        ((ROBUST, NATURAL, ROBUST_2), "generalist_t"),
    ],
)
def test_names_are_the_papers(learners, slug):
    shares = {2: (1.0,), 3: (0.5, 0.5)}[len(learners)]
    assert Generalist(learners, shares=shares).slug == slug


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"gamma": (1.0, 1.2, 1.0, 0.0)}, r"gamma within \[0, 1\]"),
        ({"gamma": (1.0, 0.0)}, "4 values of gamma"),
        ({"c": Fraction(0)}, "c above 0"),
        ({"shares": (0.5, 0.5)}, "1 shares"),
        ({"t_prime": Fraction(75)}, "share of the epochs"),
        ({"redistribution": "onse"}, "did you mean 'once'"),
        ({"overwrites": "average"}, "did you mean 'averages'"),
        ({"clock": "epochs"}, "did you mean 'epoch'"),
        ({"learners": (ROBUST,)}, "two learners"),
    ],
)
def test_bad_settings_are_named(fields, message):
    with pytest.raises(UserError, match=message):
        Generalist(**{"learners": (ROBUST, NATURAL), **fields})


def test_clock_progress_is_below_one():
    assert Clock(119, 9, 120, 10).progress < 1


def test_born_late_the_others_learn_the_same_but_for_their_momentum(lab, batch):
    """NT draws no random numbers; without momentum the late training ends with the same bits."""
    natural = dataclasses.replace(NATURAL, optim=dataclasses.replace(NATURAL.optim, momentum=0.0))
    whole = Generalist(
        (ROBUST, natural), t_prime=Fraction(5, 12), c=Fraction(1, 4), average=Average(0.9)
    )
    late = dataclasses.replace(whole, late=True)
    assert late.meeting == Fraction(1, 2)
    one, other = (trained(method, lab, batch) for method in (whole, late))
    assert torch.equal(weights(one.deployed()), weights(other.deployed()))
    assert torch.equal(weights(one.learners[1].model), weights(other.learners[1].model))


def test_a_late_learner_is_not_there_before_its_birth(lab, batch):
    late = Generalist((ROBUST, NATURAL), t_prime=Fraction(5, 12), c=Fraction(1, 4), late=True)
    training, first = late.start(lab), weights(lab.new_model())
    for clock in clocks():
        reported = training.step(batch, clock)
        born = clock.steps_done >= 6  # half of twelve steps
        assert ("loss_nt" in reported) == born == ("nt" in training.networks())
        assert torch.equal(weights(training.learners[1].model), first) != born
        if clock.steps_done == 4:
            kept = training.state_dict()
    again = late.start(lab)
    again.load_state_dict(kept)
    assert list(again.networks()) == ["at"]


@pytest.mark.parametrize(
    "fields", [{"gamma": (1, 0.5, 0.5, 0)}, {"t_prime": Fraction(90, 120)}, {"parallel": True}]
)
def test_late_learners_only_where_nobody_misses_them(fields):
    with pytest.raises(UserError, match="gamma = 1 until the first redistribution, with late: true"):
        Generalist((ROBUST, NATURAL), late=True, **fields)


@pytest.mark.parametrize("redistribution", ["once", "throughout"])
def test_late_learners_are_born_as_the_global_learner(redistribution, lab, batch):
    """At the first step with a redistribution; with their averages."""
    averaged = dataclasses.replace(NATURAL, average=Average(0.9))
    late = Generalist((ROBUST, averaged), redistribution=redistribution, late=True)
    training = late.start(lab)
    steps = [Clock(epoch, step, 120, 2) for epoch in range(120) for step in range(2)]
    first = next(number for number, clock in enumerate(steps) if late.redistributes_before(clock))
    for clock in steps[first - 1 : first]:
        training.step(batch, clock)
    assert not training.born
    theta_g = weights(training.theta_g)
    training.step(batch, steps[first])
    assert training.born
    moved = weights(training.learners[1].averaged) - theta_g
    whole = weights(training.learners[1].model) - theta_g
    assert 0 < moved.norm() < 0.2 * whole.norm()  # one step of an average that began at theta_g
