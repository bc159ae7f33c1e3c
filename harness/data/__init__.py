"""Data sets behind one call: `load(name, split) -> Images`.

Splits are `train` (without the validation slice), `validation` (a fixed slice of the official
training set), `train+validation` and `test`. No torch here: reports read labels and images too.

A corrupted set is a data set like any other, with a test split only: `cifar10-c/fog/3` is CIFAR-10-C's
fog at severity 3; `cifar10-p/tilt` is a sequence of CIFAR-10-P, all frames of an image in a row
(`frames(name)` of them), each with the image's label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from harness.core.errors import expected, unknown
from harness.data.cache import Stored
from harness.data.cache import data_folder as data_folder
from harness.data.sets import SETS

SPLITS = ("train", "validation", "train+validation", "test")
_LARGEST_VALIDATION = 1000


@dataclass(frozen=True)
class Images:
    """Rows of a stored split. Their pixels are read when `x` is asked for: `take` the rows first."""

    stored: Stored
    rows: range | np.ndarray
    classes: int
    name: str  # in reports: `cifar10-c(generated)/fog/3` if we made the set

    @property
    def x(self) -> np.ndarray:
        """uint8, (n, channels, height, width): a view where the rows are a range, else a copy."""
        rows = self.rows
        if isinstance(rows, range):
            return self.stored.x[rows.start : rows.stop : rows.step]
        return self.stored.x[rows]

    @cached_property
    def y(self) -> np.ndarray:
        """int64, (n,)."""
        return self.stored.y[np.asarray(self.rows)]

    @property
    def source(self) -> str:
        """Where the arrays came from, for the report."""
        return self.stored.source

    @property
    def nbytes(self) -> int:
        return len(self) * math.prod(self.stored.x.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: slice | np.ndarray) -> Images:
        if isinstance(self.rows, range) and isinstance(rows, slice):
            return replace(self, rows=self.rows[rows])
        return replace(self, rows=np.asarray(self.rows)[rows])


def load(name: str, split: str, first: int | None = None) -> Images:
    """A split of a data set, clean or corrupted; of a corrupted set that must be made, `first` clean
    images are enough."""
    if split not in SPLITS:
        raise unknown("split", split, SPLITS, "load(name, split)")
    if "/" in name:
        return _corrupted(name, split, first)
    if name not in SETS:
        raise unknown("data set", name, SETS, "harness/data/sets.py")
    from harness.data.sources import obtain

    entry = SETS[name]
    stored = obtain(entry, "test" if split == "test" else "train")
    images = Images(stored, range(len(stored.y)), entry.classes, name)
    if split in ("test", "train+validation"):
        return images
    # The slice is always the same: no seed of a run may change it.
    order = np.random.default_rng(0).permutation(len(images))
    size = _validation_size(len(images))
    if split == "validation":
        return images.take(order[:size])
    return images.take(np.sort(order[size:]))


def _validation_size(images: int) -> int:
    return min(_LARGEST_VALIDATION, images // 10)


def count(name: str, split: str) -> int:
    """How many images a split has; for official sets without reading them."""
    known = SETS[name].images
    if not known:
        return len(load(name, split))
    everything = known["test" if split == "test" else "train"]
    held_out = _validation_size(everything)
    return {"train": everything - held_out, "validation": held_out}.get(split, everything)


def frames(name: str) -> int:
    """How many images in a row are frames of one image: 1 unless the set is a sequence."""
    if "/" not in name:
        return 1
    from harness.data.corrupted import parse

    return parse(name).frames


def _corrupted(name: str, split: str, first: int | None) -> Images:
    from harness.data.corrupted import obtain, parse

    corrupted = parse(name)
    if split != "test":
        remedy = "corrupted sets are only for testing"
        raise expected(f"the split 'test' of {name}", repr(split), remedy)
    title, stored = obtain(corrupted, first)
    return Images(stored, range(len(stored.y)), SETS[corrupted.base].classes, title)
