"""Generalist's learners in processes of their own: the serial training is the oracle."""

import copy
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
import torch
import yaml
from commands import descendants
from conftest import L2, LINF, ROOT, clocks, command, run_of, weights

from baselines.at import AT
from baselines.nt import NT
from generalist.generalist import Generalist
from generalist.parallel import packed, unpacked
from harness.core import paths
from harness.core.config import read_grid
from harness.core.errors import UserError
from harness.grid.plan import Plan
from harness.training.learner import Average, Optim, Single

ROBUST = Single(AT(LINF), Optim(lr=0.05, weight_decay=5e-4))
ROBUST_2 = Single(AT(L2), Optim(lr=0.05, weight_decay=5e-4), Average(0.9))
NATURAL = Single(NT(), Optim(lr=0.1, weight_decay=5e-4))
OFTEN = {"gamma": (0.5,) * 4, "t_prime": Fraction(0), "c": Fraction(1, 4)}
D = Generalist((ROBUST, ROBUST_2), **OFTEN)
T = Generalist((ROBUST, NATURAL, ROBUST_2), shares=(0.3, 0.7), **OFTEN)


def parallel(method: Generalist) -> Generalist:
    return dataclasses.replace(method, parallel=True)


def advance(training, batch, first, last):
    return [training.step(batch, clock) for clock in clocks()[first:last]]


def equal(one, other) -> bool:
    return torch.equal(weights(one.deployed()), weights(other.deployed()))


@pytest.mark.parametrize("method", [D, T], ids=["D", "T"])
def test_parallel_and_serial_end_with_the_same_weights(method, lab, batch):
    """Through redistributions, and through a checkpoint of one that the other continues."""
    serial, side_by_side = method.start(lab), parallel(method).start(lab)
    assert advance(serial, batch, 0, 8) == advance(side_by_side, batch, 0, 8)
    assert equal(serial, side_by_side)
    states = copy.deepcopy((serial.state_dict(), side_by_side.state_dict()))
    advance(serial, batch, 8, 12)
    continued = method.start(lab)
    continued.load_state_dict(states[1])
    side_by_side.load_state_dict(states[0])
    for training in (continued, side_by_side):
        advance(training, batch, 8, 12)
        assert equal(serial, training)


def test_what_was_on_the_cpu_stays_there():
    """Such as the state of a random number generator, which learners are sent with."""
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    received = unpacked(packed({"state": state, "generator": generator}), torch.device("meta"))
    assert received["state"].device.type == "cpu"
    assert torch.equal(received["generator"].get_state(), state)


def test_a_failing_learner_says_what_it_says_in_serial(lab, batch):
    wild = dataclasses.replace(NATURAL, optim=Optim(lr=1e30, weight_decay=0.0))
    method = Generalist((ROBUST, wild), c=Fraction(1))
    said = []
    for training in (method.start(lab), parallel(method).start(lab)):
        with pytest.raises(UserError, match=r"finite loss.* for nt at epoch 1, step") as error:
            advance(training, batch, 0, 12)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_killed_learner_is_noticed(lab, batch):
    training = parallel(D).start(lab)
    advance(training, batch, 0, 1)
    os.kill(training.learners[1].process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="learner at_l2 to go on, found its end with exit code -9"):
        advance(training, batch, 1, 12)


def test_a_training_that_is_dropped_takes_its_processes_along(lab):
    training = parallel(D).start(lab)
    process = training.learners[1].process
    assert process.is_alive()
    del training
    assert not process.is_alive()


@pytest.fixture(scope="module")
def grid(tmp_path_factory) -> Path:
    content = read_grid()
    base = {**content["methods"]["generalist_d_linf_l2"], "t_prime": "0", "c": "1/4"}
    content["methods"] |= {"apart": base, "together": {**base, "parallel": True}}
    table = content["artefacts"]["cvpr23_table1a"]
    content["artefacts"] = {"cvpr23_table1a": {**table, "methods": ["together", "apart"]}}
    path = tmp_path_factory.mktemp("grid") / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_as_many_processes_as_learners_and_an_identity_of_its_own(grid):
    assert [method.processes for method in (D, parallel(D), parallel(T))] == [1, 2, 3]
    plan = Plan.read("ci", grid)
    together, apart, alone = (run_of(plan, slug) for slug in ("together", "apart", "at"))
    assert [run.processes for run in (together, apart, alone)] == [2, 1, 1]
    assert together.id != apart.id


def test_kill_9_leaves_no_orphan_and_the_run_continues(grid, tmp_path):
    plan = Plan.read("ci", grid)
    together, apart = run_of(plan, "together"), run_of(plan, "apart")
    words = ["harness", "train", "--scale", "ci", "--grid", str(grid), "--results", str(tmp_path)]
    words.append("--run")
    process = subprocess.Popen(
        [sys.executable, "-m", *words, together.id], cwd=ROOT, stderr=subprocess.PIPE
    )
    deadline, checkpoint = time.monotonic() + 120, paths.checkpoint(tmp_path, together.id)
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    children = descendants(process.pid)
    assert len(children) >= 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not paths.model(tmp_path, together.id).exists()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, "an orphan lives on"
        time.sleep(0.05)
    assert "continuing" in command(*words, together.id, cwd=ROOT, check=True).stdout
    command(*words, apart.id, cwd=ROOT, check=True)
    sums = [
        json.loads(paths.description(tmp_path, run.id).read_text())["sha256"]
        for run in (together, apart)
    ]
    assert sums[0] == sums[1]
