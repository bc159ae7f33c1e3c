"""Augmentation on tensors: a whole batch at once, on the training device, from a seed."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.runs import Augment


def augmented(pixels: Tensor, augment: Augment, generator: torch.Generator) -> Tensor:
    """uint8 images to float images in [0,1], cropped, mirrored and cut out at random."""
    count, channels, height, width = pixels.shape
    device = pixels.device

    def draw(high: int) -> Tensor:
        return torch.randint(high, (count,), generator=generator, device=device)

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
        # The centre falls anywhere in the image, so the square may hang over its edge.
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
