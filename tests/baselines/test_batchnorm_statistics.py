"""BatchNorm statistics estimated anew: the right numbers, and nothing else changes."""

import copy
import dataclasses

import pytest
import torch
from conftest import LINF, clocks

from baselines.statistics import Statistics


@pytest.fixture
def parented(lab):
    parent = lab.new_model()
    for module in parent.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean += 5  # statistics that fit nothing
    return dataclasses.replace(lab, parents=(parent.eval(),))


@pytest.mark.parametrize("threat", [None, LINF])
def test_statistics_are_the_mean_over_the_first_epoch_and_weights_stay(threat, parented, batch):
    method, (parent,) = Statistics(threat), parented.parents
    before = copy.deepcopy(parent.state_dict())
    training = method.start(parented)
    seen = []
    layers = [m for m in training.network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    layers[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    halves = [
        dataclasses.replace(batch, x=x, y=y)
        for x, y in zip(batch.x.split(24), batch.y.split(24), strict=True)
    ]
    for clock in clocks(2, 2):
        assert ("loss" in training.step(halves[clock.step], clock)) == (clock.epoch == 0)
    assert len(seen) == 2
    found = training.deployed().state_dict()
    mean = torch.stack([own.mean(dim=(0, 2, 3)) for own in seen]).mean(dim=0)
    torch.testing.assert_close(layers[0].running_mean, mean)
    for name, value in parent.state_dict().items():
        assert torch.equal(value, before[name])  # the parent's own file is not touched
        if "running" not in name and "num_batches" not in name:
            assert torch.equal(value, found[name])
