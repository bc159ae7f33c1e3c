"""The pretend device refuses what CUDA refuses, and counts what a GPU would wait for."""

import os

import pytest
import torch
from rehearsal import CUDA, counted
from torch import nn


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(4, 3, device=CUDA)


REFUSED = {
    "a sum over two devices": lambda x: x + torch.ones(3),
    "numpy": lambda x: x.numpy(),
    "the CPU's generator": lambda x: torch.rand(2, device=CUDA, generator=torch.Generator()),
    "its generator on the CPU": lambda x: torch.rand(2, generator=torch.Generator(CUDA)),
    "its indices on the CPU": lambda x: torch.ones(3)[torch.tensor([0], device=CUDA)],
    "a generator's state on it": lambda x: torch.Generator(CUDA).set_state(
        torch.Generator(CUDA).get_state().to(CUDA)
    ),
    "a part of the CPU": lambda x: torch.cat([x, torch.ones(1, 3)]),
    "labels of the CPU": lambda x: nn.functional.cross_entropy(x, torch.zeros(4, dtype=torch.long)),
    "weights of the CPU": lambda x: nn.Linear(3, 2)(x),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses(what, x):
    with pytest.raises((RuntimeError, TypeError)):
        REFUSED[what](x)


def test_it_refuses_use_after_a_fork(x):
    child = os.fork()
    if child == 0:
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_it_counts(x):
    counted()
    y = (x + 1) * 2
    assert counted() == (2, 0, 0)
    assert float(y.sum()) == 48  # the number is one wait
    assert counted()[1] == 1
    y[x > 0]
    assert counted()[1] > 0
    torch.ones(3).to(CUDA)
    assert counted()[2] == 1
