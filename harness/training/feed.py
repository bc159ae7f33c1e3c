"""The pixels of training batches that are not on the device: cropped on the CPU, ahead of their step.

A pool of threads decodes and crops the batches of the next steps while the device computes this one.
What a batch is depends on (run, epoch, step) alone, so reading ahead changes no bit, and a run that
continues from its checkpoint has nothing to restore. A device of CUDA gets pinned memory, from which it
copies while it computes. The memory is allocated by the thread that trains: another would use the first
device of the machine.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from harness.core.paths import seed_from
from harness.data import Images
from harness.data.cache import Lazy
from harness.data.pictures import Pictures
from harness.machine.distributed import slice_of
from harness.training.runs import TrainRun

if TYPE_CHECKING:
    from PIL import Image

_AHEAD = 2  # batches
# Of a random resized crop: its share of the image's area, and its width over its height.
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


class Feed:
    """Gives the pixels of a step's batch and begins those of the next ones."""

    def __init__(self, images: Images, run: TrainRun, pinned: bool) -> None:
        self.images, self.run, self.pinned = images, run, pinned
        self.pool = ThreadPoolExecutor(torch.get_num_threads())
        self.order: Tensor | None = None
        self.rows = np.empty(0, np.int64)
        self.begun: dict[tuple[int, int], tuple[Tensor, list[Future]]] = {}

    def at(self, order: Tensor, epoch: int, step: int) -> Tensor:
        """uint8, on the CPU; where processes share the batch, this one's slice."""
        if order is not self.order:
            self.order, self.rows, self.begun = order, order.cpu().numpy(), {}
        steps = -(-len(self.rows) // self.run.recipe.batch_size)
        wanted = [(epoch, number) for number in range(step, min(step + _AHEAD + 1, steps))]
        self.begun = {key: self.begun.get(key) or self._begin(*key) for key in wanted}
        pixels, parts = self.begun.pop((epoch, step))
        for part in parts:
            part.result()
        return pixels

    def _begin(self, epoch: int, step: int) -> tuple[Tensor, list[Future]]:
        recipe = self.run.recipe
        rows = self.rows[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        begin, end = slice_of(len(rows))
        generator = torch.Generator().manual_seed(seed_from(self.run.seed, "crop", epoch, step))
        draws = torch.rand((len(rows), _TRIES, 4), generator=generator)[begin:end].numpy()
        side = recipe.augment.random_resized_crop
        _, channels, height, width = self.images.stored.x.shape
        shape = (end - begin, channels, side or height, side or width)
        pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=self.pinned)
        places = zip(pixels.numpy(), rows[begin:end], draws, strict=True)
        return pixels, [self.pool.submit(self._fill, *place) for place in places]

    def _fill(self, place: np.ndarray, row: int, draws: np.ndarray) -> None:
        number, stored = int(self.images.rows[row]), self.images.stored.x
        side = self.run.recipe.augment.random_resized_crop
        if side:
            place[:] = cropped(picture(stored, number), draws, side)
        else:
            place[:] = stored[number : number + 1][0]


def picture(stored: np.ndarray | Lazy, number: int) -> Image.Image:
    """One image: from its file, as large as it is there, or as it is stored."""
    from PIL import Image

    if isinstance(stored, Pictures):
        return stored.picture(number)
    (image,) = stored[number : number + 1]
    return Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0).squeeze()))


def cropped(image: Image.Image, draws: np.ndarray, side: int) -> np.ndarray:
    """A random box as a square of `side`, by the bilinear filter of PIL, as in torchvision."""
    from PIL import Image

    width, height = image.size
    top, left, tall, wide = random_box(height, width, draws)
    box = image.crop((left, top, left + wide, top + tall))
    pixels = np.asarray(box.resize((side, side), Image.Resampling.BILINEAR))
    return pixels.reshape(side, side, -1).transpose(2, 0, 1)


def random_box(height: int, width: int, draws: np.ndarray) -> tuple[int, int, int, int]:
    """Top, left, height and width of a box, as torchvision's RandomResizedCrop draws it.

    The first of ten draws that fits into the image; if none fits, the middle at the nearest ratio. A
    draw is four numbers in [0, 1).
    """
    low, high = (math.log(ratio) for ratio in _RATIO)
    for share, shape, down, right in draws.tolist():
        area = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * share)
        ratio = math.exp(low + (high - low) * shape)
        tall, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < tall <= height and 0 < wide <= width:
            return int(down * (height - tall + 1)), int(right * (width - wide + 1)), tall, wide
    tall, wide = min(height, round(width / _RATIO[0])), min(width, round(height * _RATIO[1]))
    return (height - tall) // 2, (width - wide) // 2, tall, wide
