"""What the benchmarks train and attack: digits enlarged to 32x32 in three channels, a lab, a clock.

A network only has to be able to learn something from the images: no data set is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from harness.data import load
from harness.grid.plan import Plan
from harness.machine.device import placed
from harness.models.networks import new_model
from harness.training.batches import unit
from harness.training.contracts import Batch, Clock, Lab

CPU = torch.device("cpu")
CLASSES = 10


def digits(count: int, pixels: int = 32, channels: int = 3, split: str = "train") -> Batch:
    images = load("digits", split).take(slice(count))
    x = unit(torch.from_numpy(images.x))
    x = nn.functional.interpolate(x, size=pixels).repeat(1, channels, 1, 1)
    return Batch(x, torch.from_numpy(images.y), torch.arange(len(x)))


def new_network(name: str, seed: int = 0) -> nn.Module:
    return new_model(name, 3, CLASSES, seed)


def lab_for(network: str, batch: Batch) -> Lab:
    return Lab(
        new_model=lambda: placed(new_network(network), CPU),
        parents=(),
        num_classes=CLASSES,
        generator=lambda role: torch.Generator().manual_seed(len(role)),
        device=CPU,
        validation=batch,
        sample=batch,
    )


def paper_method(slug: str) -> Any:
    """A method as the paper scale has it: ten attack steps, its own optimizer."""
    return Plan.read("paper").train_run(slug, "cifar10", "resnet18", seed=0).method


CLOCK = Clock(epoch=1, step=0, epochs=120, steps_per_epoch=391)
