"""Training images: batches, each a pure function of (run, epoch, step), and their augmentation.

Augmentation works on tensors, a whole batch at once, on the training device.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from harness.core.paths import seed_from
from harness.data import Images, load
from harness.machine.distributed import own_slice, per_image
from harness.training.contracts import Batch
from harness.training.feed import Feed
from harness.training.runs import Augment, TrainRun

_ON_DEVICE_BYTES = 8 * 2**30  # larger sets, such as ImageNet, stay where they are


class Batches:
    """The training set; gives the batch of any step. On the device if it fits, else read ahead."""

    def __init__(self, run: TrainRun, device: torch.device) -> None:
        # The papers selected on test data, so they could train on all training images.
        split = "train+validation" if run.selection.use == "paper-test" else "train"
        self.images = load(run.dataset, split).take(slice(run.recipe.examples))
        self.run, self.device = run, device
        self.y = torch.from_numpy(self.images.y).to(device)
        self.steps_per_epoch = -(-len(self.images) // run.recipe.batch_size)
        self.source: Tensor | Feed
        if self.images.nbytes > _ON_DEVICE_BYTES or run.recipe.augment.random_resized_crop:
            self.source = Feed(self.images, run, pinned=device.type == "cuda")
        else:
            self.source = torch.from_numpy(self.images.x).to(device)

    def order(self, epoch: int) -> Tensor:
        """The image numbers of an epoch, shuffled."""
        generator = torch.Generator().manual_seed(seed_from(self.run.seed, "order", epoch))
        return torch.randperm(len(self.y), generator=generator).to(self.device)

    def at(self, order: Tensor, epoch: int, step: int) -> Batch:
        """The augmented batch of a step; where processes share it, this one's slice."""
        size = self.run.recipe.batch_size
        index = own_slice(order[step * size : (step + 1) * size])
        generator = seeded(self.device, self.run.seed, "augment", epoch, step)
        if isinstance(self.source, Feed):
            pixels = self.source.at(order, epoch, step).to(self.device, non_blocking=True)
        else:
            pixels = self.source[index]
        x = augmented(pixels, self.run.recipe.augment, generator)
        return Batch(x, self.y[index], index)


def seeded(device: torch.device, *role: int | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_from(*role))


def whole(dataset: str, split: str, device: torch.device, examples: int | None = None) -> Batch:
    """A split as one batch, without augmentation."""
    images = load(dataset, split).take(slice(examples))
    x, y = on_device(images, device)
    return Batch(x, y, torch.arange(len(y), device=device))


def on_device(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images as networks take them (float, in [0,1]), and their labels."""
    pixels, y = torch.from_numpy(np.ascontiguousarray(images.x)), torch.from_numpy(images.y)
    return unit(pixels.to(device)), y.to(device)


def augmented(pixels: Tensor, augment: Augment, generator: torch.Generator) -> Tensor:
    """uint8 images to float images in [0,1], cropped, mirrored and cut out at random.

    A resized crop is made before, from the image as it is stored (harness/training/feed.py).
    """
    count, channels, height, width = pixels.shape
    device = pixels.device

    def draw(high: int) -> Tensor:
        integers = partial(torch.randint, high)
        return per_image(integers, (count,), generator=generator, device=device)

    if augment.pad:
        padded = torch.nn.functional.pad(pixels, [augment.pad] * 4)
        rows = draw(2 * augment.pad + 1)[:, None] + torch.arange(height, device=device)
        columns = draw(2 * augment.pad + 1)[:, None] + torch.arange(width, device=device)
        image = torch.arange(count, device=device)[:, None, None, None]
        channel = torch.arange(channels, device=device)[None, :, None, None]
        pixels = padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
    if augment.flip:
        mirrored = draw(2).bool()[:, None, None, None]
        pixels = torch.where(mirrored, pixels.flip(-1), pixels)
    if augment.cutout:
        # The centre is anywhere in the image, so the square may reach over the edge.
        rows = _covered(draw(height), height, augment.cutout)
        columns = _covered(draw(width), width, augment.cutout)
        pixels = pixels.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)
    return unit(pixels)


def _covered(centre: Tensor, size: int, side: int) -> Tensor:
    """Which of `size` positions lie in the window of `side` around each centre: (n, size)."""
    offset = torch.arange(size, device=centre.device) - (centre[:, None] - side // 2)
    return (offset >= 0) & (offset < side)


def unit(pixels: Tensor) -> Tensor:
    return pixels.float().div_(255)
