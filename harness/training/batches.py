"""The images of a training: batch by batch, each a pure function of (run, epoch, step), or at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from harness.core.errors import expected
from harness.core.identity import seed_from
from harness.data import Images, load
from harness.data.sets import SETS
from harness.machine import distributed
from harness.training.augment import augmented, unit
from harness.training.contracts import Batch
from harness.training.runs import TrainRun

_ON_DEVICE_BYTES = 8 * 2**30  # a larger training set, such as ImageNet, stays mapped from its file


class Batches:
    """The training set, on the device if it fits; the batch of any step can be asked for directly."""

    def __init__(self, run: TrainRun, device: torch.device) -> None:
        # The papers selected on test data and so could train on everything.
        split = "train+validation" if run.selection.use == "paper-test" else "train"
        images = load(run.dataset, split).take(slice(run.recipe.examples))
        if images.x.shape[2:] != SETS[run.dataset].size and not run.recipe.augment.resized_crop:
            raise expected(
                f"resized_crop for {run.dataset}, whose training images are stored larger",
                "none in its augment",
                "write augment: {pad: 0, flip: true, resized_crop: 224}",
            )
        self.run, self.device, self.stored = run, device, images.stored
        large = images.x.nbytes > _ON_DEVICE_BYTES
        self.x = torch.from_numpy(images.x).to("cpu" if large else device)
        self.y = torch.from_numpy(images.y).to(device)
        self.steps_per_epoch = -(-len(images) // run.recipe.batch_size)

    def order(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_from(self.run.seed, "order", epoch))
        return torch.randperm(len(self.y), generator=generator).to(self.device)

    def at(self, order: Tensor, epoch: int, step: int) -> Batch:
        size = self.run.recipe.batch_size
        index = distributed.mine(order[step * size : (step + 1) * size])
        generator = seeded(self.device, self.run.seed, "augment", epoch, step)
        pixels = self.x[index.to(self.x.device)].to(self.device)
        x = augmented(pixels, self.run.recipe.augment, generator)
        return Batch(x, self.y[index], index)


def seeded(device: torch.device, *parts: int | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_from(*parts))


def whole(dataset: str, split: str, device: torch.device, examples: int | None = None) -> Batch:
    """A split as one batch, without augmentation."""
    images = load(dataset, split).take(slice(examples)).centre(SETS[dataset].size)
    x, y = on_device(images, device)
    return Batch(x, y, torch.arange(len(y), device=device))


def on_device(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images as networks take them, and their labels."""
    pixels, y = torch.from_numpy(np.ascontiguousarray(images.x)), torch.from_numpy(images.y)
    return unit(pixels.to(device)), y.to(device)
