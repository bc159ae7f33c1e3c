"""What a run keeps of its learners: right numbers, nothing disturbed, nothing lost by a stop."""

import dataclasses
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import LINF, clocks, run_of
from test_train import CPU, checksum, interrupted

from baselines.at import AT
from baselines.nt import NT
from generalist.gamma import gamma_at
from generalist.generalist import Generalist
from generalist.parallel import packed
from harness.core import paths
from harness.core.paths import AFTER
from harness.grid.plan import Plan
from harness.training.epochs import Watcher, accuracy
from harness.training.learner import Average, Optim, Single
from harness.training.runs import Watch
from harness.training.train import train
from harness.training.weights import copy_into, distance, mix_into, spread

ROBUST = Single(AT(LINF), Optim(lr=0.05, weight_decay=5e-4))
NATURAL = Single(NT(), Optim(lr=0.1, weight_decay=5e-4))


@pytest.fixture(scope="module")
def watched(plan):
    attack = plan.columns.pgd("digits", "linf", 3)
    watch = Watch(attack, examples=40, moments=(Fraction(1, 2), Fraction(1)))
    return run_of(plan, "generalist_d_nt_linf", watch=watch)


def test_watching_changes_no_weight_and_is_another_run(plan, watched, tmp_path):
    plain = dataclasses.replace(watched, watch=None)
    assert plain.id == run_of(plan, "generalist_d_nt_linf").id != watched.id
    for run in (plain, watched):
        train(run, tmp_path, CPU)
    assert checksum(tmp_path, plain) == checksum(tmp_path, watched)
    history = pd.read_csv(paths.history(tmp_path, watched.id))
    names = [name for name in history if name.startswith(("natural:", "robust:"))]
    before = history[[name for name in names if not name.endswith(AFTER)]]
    assert before.shape == (3, 3 + 2 * 3)  # learners and global, under either one's examples
    assert ((before >= 0) & (before <= 1)).all(axis=None)
    after = history[[f"{name}{AFTER}" for name in before]]
    assert after.notna().all(axis=1).tolist() == [False, True, False]  # t' lies in epoch 2
    assert dict(np.load(paths.trace(tmp_path, plain.id))) == {}
    kept = dict(np.load(paths.trace(tmp_path, watched.id)))
    assert set(kept) == {"2:at", "2:nt", "3:at", "3:nt"}
    assert {array.shape for array in kept.values()} == {(40, 1, 8, 8)}


def test_a_stopped_run_keeps_what_it_saw(watched, tmp_path):
    undisturbed, disturbed = tmp_path / "a", tmp_path / "b"
    train(watched, undisturbed, CPU)
    interrupted(watched, disturbed)
    train(watched, disturbed, CPU)
    one, other = (np.load(paths.trace(place, watched.id)) for place in (undisturbed, disturbed))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    histories = [paths.history(place, watched.id).read_text() for place in (undisturbed, disturbed)]
    assert histories[0] == histories[1]


def test_the_numbers_are_the_learners(watched, lab, batch):
    training = watched.method.start(lab)
    clock = clocks()[0]
    training.step(batch, clock)
    watcher = Watcher(watched, lab)
    seen = watcher.measure(training, clock)
    networks = training.networks()
    assert list(networks) == ["at", "nt"]
    assert seen["natural:nt"] == accuracy(networks["nt"], watcher.x, watcher.y)
    assert seen["distance_at"] == pytest.approx(distance(networks["at"], training.deployed()))
    copy_into(networks["at"], training.deployed())
    assert watcher.measure(training, clock)["distance_at"] == 0


GENERALIST = Generalist((ROBUST, NATURAL), (0.5,) * 4, t_prime=Fraction(0), c=Fraction(1, 4))


def stepped(method, lab, batch, epochs):
    """A training after whole epochs, and the clock of its last step."""
    training = method.start(lab)
    for clock in clocks()[: 3 * epochs]:
        training.step(batch, clock)
    return training, clock


@pytest.mark.parametrize("parallel", [None, True], ids=["serial", "parallel"])
@pytest.mark.parametrize("overwrites", ["learners", "averages"])
def test_the_look_before_and_after_a_redistribution(watched, parallel, overwrites, lab, batch):
    """Announced, it is what really happens; an average that survives stays what it was."""
    averaged, raw = dataclasses.replace(ROBUST, average=Average(0.9)), NATURAL
    method = dataclasses.replace(
        GENERALIST, learners=(averaged, raw), parallel=parallel, overwrites=overwrites
    )
    training, clock = stepped(method, lab, batch, 2)
    watcher, state = Watcher(watched, lab), packed(training.state_dict())
    seen = watcher.measure(training, clock)
    for name in ("distance_at", "distance_nt", "theorem2", "theorem2_mean"):
        assert seen[name] > 0
    assert packed(training.state_dict()) == state  # looking overwrites nothing
    training._redistribute()
    if parallel:  # what this process knows of the other's learner is as of its last step
        copy_into(training.learners[1].seen, training.theta_g)
    then = watcher.measure(training, clock)
    assert {name: value for name, value in seen.items() if name.endswith(AFTER)} == {
        f"{name}{AFTER}": value for name, value in then.items() if not name.endswith(AFTER)
    }
    assert seen[f"distance_nt{AFTER}"] == 0
    survives = overwrites == "learners"
    assert (seen[f"distance_at{AFTER}"] == seen["distance_at"]) == survives
    assert (seen[f"natural:at{AFTER}"] == seen["natural:global"]) or survives


def test_no_redistribution_no_second_look(watched, lab, batch):
    seldom = dataclasses.replace(GENERALIST, t_prime=Fraction(1, 2))
    training, clock = stepped(seldom, lab, batch, 1)
    watcher = Watcher(watched, lab)
    assert not any(AFTER in name for name in watcher.measure(training, clock))  # before t'
    training, clock = stepped(GENERALIST, lab, batch, 4)
    assert not any(AFTER in name for name in watcher.measure(training, clock))  # the run is over


def test_parallel_learners_measure_like_serial_ones(watched, lab, batch):
    measured = []
    for parallel in (None, True):
        method = dataclasses.replace(GENERALIST, parallel=parallel)
        training, clock = stepped(method, lab, batch, 2)
        measured.append(Watcher(watched, lab).measure(training, clock))
    assert measured[0] == measured[1]
    assert f"theorem2{AFTER}" in measured[0]


def test_after_t_prime_the_learners_are_not_one_network(tmp_path):
    """At smoke, where a redistribution follows every epoch from t' on; without a watch, too."""
    run = run_of(Plan.read("smoke"), "generalist_d_nt_linf")
    assert run.watch is None
    train(run, tmp_path, CPU)
    history = pd.read_csv(paths.history(tmp_path, run.id))
    late = history[history.epoch >= 8]  # t' = 75/120 is in the middle of epoch 8
    assert len(late) == 5
    for name in ("theorem2", "distance_at", "distance_nt"):
        assert (late[name] > 0).all()
        assert (late[f"{name}{AFTER}"].dropna() == 0).all()  # raw learners become theta_g
        assert late[f"{name}{AFTER}"].notna().tolist() == [True] * 4 + [False]
    assert (history.theorem2_mean <= history.theorem2 * (1 + 1e-5)).all()
    assert (history.theorem2_mean[history.epoch <= 8] == 0).all()  # gamma is (1, 0) until 80/120
    assert (history.theorem2_mean[history.epoch > 8] > 0).all()


def test_theorem_2_from_its_formula():
    """sum_a gamma_a |theta_a - theta_bar|^2, by hand, on networks of three numbers."""
    networks = [torch.nn.Linear(2, 1) for _ in range(3)]
    points = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.0, 5.0], [4.0, 4.0, 4.0]])
    centre, gamma = torch.nn.Linear(2, 1), (0.5, 0.2, 0.3)
    for network, point in zip([*networks, centre], [*points, torch.ones(3)], strict=True):
        torch.nn.utils.vector_to_parameters(point, network.parameters())
    around_ones = 0.5 * (0 + 1 + 4) + 0.2 * (4 + 1 + 16) + 0.3 * (9 + 9 + 9)
    assert spread(networks, gamma, centre) == pytest.approx(around_ones)
    mean = torch.tensor([0.5 - 0.2 + 1.2, 1 + 1.2, 1.5 + 1 + 1.2])
    gaps = ((points - mean) ** 2).sum(dim=1)
    around_mean = float((torch.tensor(gamma) * gaps).sum())
    assert spread(networks, gamma, None) == pytest.approx(around_mean)
    # Around any other point it is larger, by that point's own distance to the mean.
    assert around_ones == pytest.approx(around_mean + float(((mean - 1) ** 2).sum()))
    assert spread(networks, (1.0, 0.0, 0.0), None) == 0


def vector(network):
    return torch.cat([parameter.detach().flatten() for parameter in network.parameters()])


def test_the_term_that_is_logged_is_theorem_2s(watched, lab, batch):
    """With gamma as of the epoch's last step, around theta_g and around the learners' mean."""
    method = dataclasses.replace(GENERALIST, gamma=(1.0, 1.0, 1.0, 0.0))
    training, clock = stepped(method, lab, batch, 4)
    gamma = gamma_at((1, 1, 1, 0), 11 / 12)
    assert 0.2 < gamma < 0.3
    seen = Watcher(dataclasses.replace(watched, watch=None), lab).measure(training, clock)
    at, nt = map(vector, training.networks().values())
    for name, centre in (
        ("theorem2", vector(training.theta_g)),
        ("theorem2_mean", gamma * at + (1 - gamma) * nt),
    ):
        squared = [float((theta - centre).pow(2).sum()) for theta in (at, nt)]
        term = gamma * squared[0] + (1 - gamma) * squared[1]
        assert seen[name] == pytest.approx(term, rel=1e-4)


def test_distance_from_its_formula(lab):
    one, other = lab.new_model(), lab.new_model()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.mul_(1.5)
    assert distance(one, other) == pytest.approx(0.5, abs=1e-6)


def test_the_line_between_learners_and_both_sides_of_theorem_1s_step(watched, lab, batch):
    """Ends are the learners, the middle is their mean; a redistribution is due after epoch 2."""
    watch = dataclasses.replace(watched.watch, line=3, losses=True)
    training, clock = stepped(GENERALIST, lab, batch, 2)
    watcher = Watcher(dataclasses.replace(watched, watch=watch), lab)
    seen, networks = watcher.measure(training, clock), training.networks()
    for share, name in (("0.000", "at"), ("1.000", "nt")):
        assert seen[f"line_natural:at>nt:{share}"] == seen[f"natural:{name}"]
        assert seen[f"line_robust:at>nt:{share}"] == seen[f"robust:{name}<-{name}"]
    middle = lab.new_model()
    mix_into(middle, list(networks.values()), [0.5, 0.5], decay=0.0)
    assert seen["line_natural:at>nt:0.500"] == accuracy(middle, watcher.x, watcher.y)
    cross_entropy = torch.nn.functional.cross_entropy
    found = {"mixture": middle, "global": training.theta_g, **networks}
    for name, network in found.items():
        loss = cross_entropy(network.eval()(watcher.x), watcher.y).item()
        assert seen[f"risk_natural:{name}"] == pytest.approx(loss)
        assert seen[f"risk_robust:{name}"] > seen[f"risk_natural:{name}"] - 1e-6
    for kind in ("natural", "robust"):
        mean = (seen[f"risk_{kind}:at"] + seen[f"risk_{kind}:nt"]) / 2
        assert seen[f"risk_{kind}:learners"] == pytest.approx(mean)


def test_lines_are_measured_before_a_redistribution_only(watched, lab, batch):
    watch = dataclasses.replace(watched.watch, line=2)
    seldom = dataclasses.replace(GENERALIST, t_prime=Fraction(1, 2))
    training, clock = stepped(seldom, lab, batch, 1)
    seen = Watcher(dataclasses.replace(watched, watch=watch), lab).measure(training, clock)
    assert not any(name.startswith(("line_", "risk_")) for name in seen)
