"""What the checks share. Without the pretend device, importing this skips them."""

import os
from pathlib import Path

import pytest
from pretend_cuda import LIBRARY

if LIBRARY not in os.environ:
    pytest.skip("they need the pretend GPU: make test-device", allow_module_level=True)

import torch

from harness.core import paths
from harness.grid.plan import Plan
from harness.training.runs import TrainRun
from harness.training.train import train

CUDA = torch.device("cuda")


def trained(plan: Plan, run: TrainRun, results: Path) -> TrainRun:
    """A run and its parents, trained on the device unless they are."""
    for one in [*map(plan.run, run.parents), run]:
        if not paths.model(results, one.id).exists():
            train(one, results, CUDA)
    return run


def counted() -> tuple[int, int, int]:
    """Operations, waits of the CPU for the device, and copies to it, since the last time."""
    operations, waits, uploads, *_ = torch.ops.pretend.counts()
    torch.ops.pretend.reset()
    return operations, waits, uploads
