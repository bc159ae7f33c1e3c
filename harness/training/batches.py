"""Training images: batches, each a pure function of (run, epoch, step), and their augmentation.

Augmentation works on tensors, a whole batch at once, on the training device.
"""

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from harness.core.errors import expected
from harness.core.paths import seed_from
from harness.data import Images, load
from harness.data.sets import SETS
from harness.machine.distributed import own_slice, per_image
from harness.training.contracts import Batch
from harness.training.runs import Augment, TrainRun

_ON_DEVICE_BYTES = 8 * 2**30  # larger sets, such as ImageNet, stay mapped from their file
# Of a random resized crop: its share of the image's area, and its width over its height.
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


class Batches:
    """The training set, on the device if it fits; gives the batch of any step."""

    def __init__(self, run: TrainRun, device: torch.device) -> None:
        # The papers selected on test data, so they could train on all training images.
        split = "train+validation" if run.selection.use == "paper-test" else "train"
        images = load(run.dataset, split).take(slice(run.recipe.examples))
        if images.x.shape[2:] != SETS[run.dataset].size and not run.recipe.augment.resized_crop:
            what = f"resized_crop for {run.dataset}, whose training images are stored larger"
            remedy = "write augment: {pad: 0, flip: true, resized_crop: 224}"
            raise expected(what, "none in its augment", remedy)
        self.run, self.device, self.stored = run, device, images.stored
        large = images.x.nbytes > _ON_DEVICE_BYTES
        self.x = torch.from_numpy(images.x).to("cpu" if large else device)
        self.y = torch.from_numpy(images.y).to(device)
        self.steps_per_epoch = -(-len(images) // run.recipe.batch_size)

    def order(self, epoch: int) -> Tensor:
        """The image numbers of an epoch, shuffled."""
        generator = torch.Generator().manual_seed(seed_from(self.run.seed, "order", epoch))
        return torch.randperm(len(self.y), generator=generator).to(self.device)

    def at(self, order: Tensor, epoch: int, step: int) -> Batch:
        """The augmented batch of a step; where processes share it, this one's slice."""
        size = self.run.recipe.batch_size
        index = own_slice(order[step * size : (step + 1) * size])
        generator = seeded(self.device, self.run.seed, "augment", epoch, step)
        pixels = self.x[index.to(self.x.device)].to(self.device)
        x = augmented(pixels, self.run.recipe.augment, generator)
        return Batch(x, self.y[index], index)


def seeded(device: torch.device, *role: int | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_from(*role))


def whole(dataset: str, split: str, device: torch.device, examples: int | None = None) -> Batch:
    """A split as one batch, without augmentation."""
    images = load(dataset, split).take(slice(examples)).centre(SETS[dataset].size)
    x, y = on_device(images, device)
    return Batch(x, y, torch.arange(len(y), device=device))


def on_device(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images as networks take them (float, in [0,1]), and their labels."""
    pixels, y = torch.from_numpy(np.ascontiguousarray(images.x)), torch.from_numpy(images.y)
    return unit(pixels.to(device)), y.to(device)


def augmented(pixels: Tensor, augment: Augment, generator: torch.Generator) -> Tensor:
    """uint8 images to float images in [0,1], cropped, mirrored and cut out at random."""
    if augment.resized_crop:
        pixels = resized(pixels, random_boxes(pixels.shape, generator), augment.resized_crop)
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


def random_boxes(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """A box (top, left, height, width) for each image, as torchvision's RandomResizedCrop draws it.

    The first of ten draws that fits into the image; if none fits, the middle at the nearest ratio. All
    ten are drawn for every image, so no image's box depends on another's.
    """
    count, _, height, width = shape
    options = {"generator": generator, "device": generator.device}
    draws = per_image(torch.rand, (count, _TRIES, 4), **options)
    area = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * draws[..., 0])
    low, high = (math.log(ratio) for ratio in _RATIO)
    ratio = torch.exp(low + (high - low) * draws[..., 1])
    tall, wide = (area / ratio).sqrt().round().long(), (area * ratio).sqrt().round().long()
    fits = (tall > 0) & (tall <= height) & (wide > 0) & (wide <= width)
    first = fits.int().argmax(dim=1, keepdim=True)  # 0 where none fits
    tall, wide, top, left = (
        own.gather(1, first).squeeze(1) for own in (tall, wide, draws[..., 2], draws[..., 3])
    )
    # A draw is below 1, but its product may be rounded up to the end of the range.
    top = torch.minimum((top * (height - tall + 1)).long(), height - tall)
    left = torch.minimum((left * (width - wide + 1)).long(), width - wide)
    found = torch.stack([top, left, tall, wide], dim=1)
    tall_side = min(height, round(width / _RATIO[0]))
    wide_side = min(width, round(height * _RATIO[1]))
    middle = [(height - tall_side) // 2, (width - wide_side) // 2, tall_side, wide_side]
    return torch.where(fits.any(dim=1, keepdim=True), found, torch.tensor(middle).to(found))


def resized(pixels: Tensor, boxes: Tensor, side: int) -> Tensor:
    """Each image's box as a square of `side`, by the bilinear filter that torchvision and PIL use.

    The filter is separable: each image has a matrix for its rows and one for its columns, so a batch is
    two products. Rounded to whole levels, as uint8 images are.
    """
    rows = _bilinear(boxes[:, 0], boxes[:, 2], pixels.shape[2], side)[:, None]
    columns = _bilinear(boxes[:, 1], boxes[:, 3], pixels.shape[3], side)[:, None]
    # A step may run under autocast: bf16 has too few digits for 256 levels.
    with torch.autocast(pixels.device.type, enabled=False):
        return (rows @ pixels.float() @ columns.mT).round_()


def _bilinear(first: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """The weight of each of `size` positions in each of `side` outputs: (n, side, size)."""
    device = first.device
    first, length = first.float()[:, None, None], length.float()[:, None, None]
    scale = length / side
    output = torch.arange(side, device=device)[None, :, None] + 0.5
    position = torch.arange(size, device=device)[None, None, :] + 0.5 - first
    away = (position - output * scale).abs() / scale.clamp(min=1)  # shrinking widens the filter
    weight = (1 - away).clamp(min=0) * ((position > 0) & (position < length))
    return weight / weight.sum(dim=2, keepdim=True)


def _covered(centre: Tensor, size: int, side: int) -> Tensor:
    """Which of `size` positions lie in the window of `side` around each centre: (n, size)."""
    offset = torch.arange(size, device=centre.device) - (centre[:, None] - side // 2)
    return (offset >= 0) & (offset < side)


def unit(pixels: Tensor) -> Tensor:
    return pixels.float().div_(255)
