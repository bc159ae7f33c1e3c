"""What a run keeps of its learners: right numbers, nothing disturbed, nothing lost by a stop."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import clocks, run_of
from test_train import CPU, checksum, interrupted

from harness import paths
from harness.records import read_arrays
from harness.runs import Watch
from harness.train import train
from harness.watch import Watcher, accuracy
from harness.weights import copy_into, distance


@pytest.fixture(scope="module")
def watched(plan):
    attack = plan.columns.pgd("digits", "linf", 3)
    return run_of(plan, "generalist_d_nt_linf", watch=Watch(attack, examples=40, epochs=2))


def test_watching_changes_no_weight_and_is_another_run(plan, watched, tmp_path):
    plain = dataclasses.replace(watched, watch=None)
    assert plain.id == run_of(plan, "generalist_d_nt_linf").id != watched.id
    for run in (plain, watched):
        train(run, tmp_path, CPU)
    assert checksum(tmp_path, plain) == checksum(tmp_path, watched)
    history = pd.read_csv(paths.history(tmp_path, watched.id))
    accuracies = history[[name for name in history if ":" in name]]
    assert accuracies.shape == (3, 3 + 2 * 3)  # learners and global, under either one's examples
    assert ((accuracies >= 0) & (accuracies <= 1)).all(axis=None)
    assert read_arrays(paths.trace(tmp_path, plain.id)) == {}
    kept = read_arrays(paths.trace(tmp_path, watched.id))
    assert set(kept) == {"2:at", "2:nt", "3:at", "3:nt"}
    assert {array.shape for array in kept.values()} == {(40, 1, 8, 8)}


def test_a_stopped_run_keeps_what_it_saw(watched, tmp_path):
    undisturbed, disturbed = tmp_path / "a", tmp_path / "b"
    train(watched, undisturbed, CPU)
    interrupted(watched, disturbed)
    train(watched, disturbed, CPU)
    one, other = (read_arrays(paths.trace(place, watched.id)) for place in (undisturbed, disturbed))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    histories = [paths.history(place, watched.id).read_text() for place in (undisturbed, disturbed)]
    assert histories[0] == histories[1]


def test_the_numbers_are_the_learners(watched, lab, batch):
    training = watched.method.start(lab)
    clock = clocks()[0]
    training.step(batch, clock)
    watcher = Watcher(watched, lab)
    seen = watcher.look(training, epoch=0)
    networks = training.networks()
    assert list(networks) == ["at", "nt"]
    assert seen["natural:nt"] == accuracy(networks["nt"], watcher.x, watcher.y)
    assert seen["distance_at"] == pytest.approx(distance(networks["at"], training.deployed()))
    copy_into(networks["at"], training.deployed())
    assert watcher.look(training, epoch=0)["distance_at"] == 0


def test_distance_from_its_formula(lab):
    one, other = lab.new_model(), lab.new_model()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.mul_(1.5)
    assert distance(one, other) == pytest.approx(0.5, abs=1e-6)
