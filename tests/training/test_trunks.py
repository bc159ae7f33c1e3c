"""A run that starts from a trunk ends with the bits of one that is trained whole."""

import dataclasses
import json
from fractions import Fraction

import pytest
import torch
from conftest import clocks, run_of

from harness.core import paths
from harness.grid.plan import Plan
from harness.grid.trunks import branches, trunks
from harness.jobs import bill
from harness.training.epochs import read_checkpoint
from harness.training.runs import Stretch, parts
from harness.training.train import train
from harness.training.trunks import Judges

CPU = torch.device("cpu")
ROWS = ["at", "at_averaged", "nt", "generalist_d_nt_linf_no_ema", "generalist_d_nt_linf@validated"]
GAMMAS = ["generalist_t", "generalist_d_nt_linf_gamma_1_1_1_0.5"]


@pytest.fixture(scope="module")
def rows(plan):
    """Runs of four epochs, so t' is in the third."""
    runs = [run_of(plan, slug) for slug in (*ROWS, *GAMMAS)]
    recipe = dataclasses.replace(runs[0].recipe, epochs=4, examples=160)
    found = [dataclasses.replace(run, recipe=recipe) for run in runs]
    return {slug: run for slug, run in zip((*ROWS, *GAMMAS), found, strict=True)}


def ended(results, run):
    """What a training left behind: its weights, the epoch it deploys, its history."""
    about = json.loads(paths.description(results, run.id).read_text())
    history = paths.history(results, run.id).read_text().splitlines()
    head, *epochs = (line.split(",") for line in history)
    return about, [dict(zip(head, epoch, strict=True)) for epoch in epochs]


def test_a_run_from_a_trunk_ends_with_the_bits_of_a_whole_one(rows, tmp_path):
    starts = branches(tuple(rows.values()), whole=())
    planned = trunks(starts)
    assert starts.keys() == {run.id for run in rows.values()}
    assert {end for _, end in planned} == {2, 4}
    for trunk in planned.values():
        train(trunk, tmp_path / "split", CPU)
    for run in rows.values():
        train(starts[run.id], tmp_path / "split", CPU)
        train(run, tmp_path / "whole", CPU)
        (one, split), (other, whole) = (ended(tmp_path / name, run) for name in ("split", "whole"))
        for key in ("id", "sha256", "deployed_epoch"):
            assert one[key] == other[key], run.id
        assert len(split) == len(whole) == 4
        for epoch, (own, full) in enumerate(zip(split, whole, strict=True)):
            kept = {name: value for name, value in own.items() if value}
            assert kept == {name: full[name] for name in kept}
            lost = {name for name in full if full[name] and name not in kept}
            assert epoch >= 2 or all(n.startswith(("distance", "theorem2")) for n in lost)
            assert epoch < 2 or not lost
        assert not list(paths.model(tmp_path / "split", run.id).parent.glob("checkpoint*"))
        owners = [(owner, starts[run.id].begin) for owner in starts[run.id].owners]
        states = [read_checkpoint(paths.state(tmp_path / "split", o.id, at), o) for o, at in owners]
        assert one["cpu_seconds"] >= sum(state["cost"]["cpu_seconds"] for state in states) > 0


def test_without_its_states_a_run_is_trained_whole(rows, tmp_path, capsys):
    run = rows["generalist_d_nt_linf_gamma_1_1_1_0.5"]
    start = branches(tuple(rows.values()), whole=())[run.id]
    train(start, tmp_path / "one", CPU)
    assert "continuing" not in capsys.readouterr().out
    judged = dataclasses.replace(rows["generalist_d_nt_linf@validated"].selection)
    train(Stretch(start.owners[0], end=2), tmp_path / "other", CPU)  # judged for nobody
    train(Stretch(start.owners[1], end=2), tmp_path / "other", CPU)
    train(
        dataclasses.replace(start, run=dataclasses.replace(run, selection=judged)),
        tmp_path / "other",
        CPU,
    )
    assert "continuing" not in capsys.readouterr().out
    train(start, tmp_path / "other", CPU)
    assert "continuing" in capsys.readouterr().out
    assert ended(tmp_path / "one", run)[0]["sha256"] == ended(tmp_path / "other", run)[0]["sha256"]


def test_a_killed_trunk_continues(rows, tmp_path, monkeypatch):
    starts = branches(tuple(rows.values()), whole=())
    trunk = next(own for own in trunks(starts).values() if own.judges)
    train(trunk, tmp_path / "whole", CPU)
    monkeypatch.setattr(Judges, "judge", interrupted_at(1))
    with pytest.raises(KeyboardInterrupt):
        train(trunk, tmp_path / "killed", CPU)
    monkeypatch.undo()
    assert paths.checkpoint(tmp_path / "killed", trunk.run.id, trunk.end).exists()
    train(trunk, tmp_path / "killed", CPU)
    one, other = (
        read_checkpoint(paths.state(tmp_path / name, trunk.run.id, trunk.end), trunk.run)
        for name in ("whole", "killed")
    )
    assert one["position"] == other["position"]
    assert one["training"]["averaged"].keys() == other["training"]["averaged"].keys()
    for name, tensor in one["training"]["averaged"].items():
        assert torch.equal(tensor, other["training"]["averaged"][name])
    for key, own in one["judged"].items():
        assert own["rows"] == other["judged"][key]["rows"]


def interrupted_at(epoch):
    original = Judges.judge

    def judge(self, training, now):
        if now == epoch:
            raise KeyboardInterrupt
        original(self, training, now)

    return judge


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"redistribution": "throughout"},
        {"gamma": (1, 1, 0.8, 0.2), "c": Fraction(7, 120)},
        {"gamma": (1, 1, 1, 1), "t_prime": Fraction(1, 3)},
        {"gamma": (0.5, 1, 1, 0)},
        {"gamma": (1, 0, 0, 0)},
        {"shared_lr": True},
        {"clock": "epoch"},
        {"t_prime": Fraction(0), "redistribution": "throughout"},
    ],
)
def test_until_then_no_learner_sees_another(plan, changes):
    """Step by step, where a step is not a whole share of an epoch of the papers."""
    method = dataclasses.replace(run_of(plan, "generalist_t").method, **changes)
    for epochs, steps in ((24, 5), (12, 19), (7, 3)):
        alone = int(method.alone_until * epochs)
        for clock in clocks(epochs, steps)[: max(0, alone) * steps]:
            assert method.weights_at(clock) == (1, 0, 0)
            assert not method.redistributes_before(clock)
        if not changes:
            assert alone == int(epochs * 75 / 120)
        if changes.keys() & {"shared_lr", "clock"} or method.gamma[:2] != (1, 1):
            assert alone <= 0


def test_who_starts_from_a_trunk():
    plan = Plan.read("smoke")
    starts = plan.trunks.starts

    def starting(slug, **place):
        run = plan.train_run(slug, "cifar10", "resnet18", 0, place)
        return run.id in starts

    assert starting("at")
    assert starting("generalist_d_nt_linf_no_ema")
    assert not starting("generalist_d_nt_linf")  # extra_distance shows its learners from the start
    assert not starting("generalist_d_nt_linf@released")  # one learning rate for all
    assert not starting("generalist_d_nt_linf_parallel")
    assert not starting("rmc")
    assert not any(plan.run(run).watch for run in starts)
    shared = [start for start in starts.values() if plan.trunks.owners.keys() - plan.runs.keys()]
    assert shared  # trunks of trainings that no table shows
    for start in starts.values():
        assert 0 < start.begin <= start.run.recipe.epochs
        assert len(start.owners) == len(parts(start.run.method))
        for owner in start.owners:
            assert (owner.id, start.begin) in plan.trunks.trunks


def test_the_paper_scale_takes_a_quarter_less_training_or_better():
    """0.304 less when it was introduced, with 385 models."""
    plan = Plan.read("paper")
    rates = bill.known_rates()
    prices = {key: network.price for key, network in bill.known_networks().items()}
    cost = bill.costs(plan, rates, prices)
    hours = sum(own[0][2] for own in cost.values())
    whole = sum(
        bill.of_training(run, rates[bill.shape(run.method)]).at(prices[bill.kind(run)]) / 3600
        for run in plan.runs.values()
    )
    assert hours < 0.75 * whole
