"""Data sets behind one call: `load(name, split) -> Images`.

Splits are `train` (without the validation slice), `validation` (a fixed slice of the official
training set), `train+validation` and `test`. No torch here: reports read labels and images too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.data.sets import SETS, DataSet
from harness.errors import UserError, expected, unknown

SPLITS = ("train", "validation", "train+validation", "test")
_LARGEST_VALIDATION = 1000


@dataclass(frozen=True)
class Images:
    """x: uint8, (n, channels, height, width); y: int64, (n,)."""

    x: np.ndarray
    y: np.ndarray
    classes: int
    source: str  # where the arrays came from, for the report

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: slice | np.ndarray) -> Images:
        return Images(self.x[rows], self.y[rows], self.classes, self.source)


def data_folder() -> Path:
    return Path(os.environ.get("GENERALIST_DATA", "data"))


def load(name: str, split: str) -> Images:
    if name not in SETS:
        raise unknown("data set", name, SETS, "harness/data/sets.py")
    if split not in SPLITS:
        raise unknown("split", split, SPLITS, "load(name, split)")
    entry = SETS[name]
    x, y, source = _read(entry, "test" if split == "test" else "train")
    _check(entry, x, y)
    images = Images(x, y, entry.classes, source)
    if split in ("test", "train+validation"):
        return images
    # The slice is drawn once and for all: no seed of a run may move it.
    order = np.random.default_rng(0).permutation(len(images))
    size = min(_LARGEST_VALIDATION, len(images) // 10)
    rows = order[:size] if split == "validation" else np.sort(order[size:])
    return images.take(rows)


def _read(entry: DataSet, split: str) -> tuple[np.ndarray, np.ndarray, str]:
    """The first source that has the set: in the package, the local folder, the official address."""
    if entry.embedded is not None:
        return *entry.embedded(split), "embedded"
    folder = data_folder()
    if not entry.present(folder, split):
        _download(entry, folder, split)
    try:
        x, y = entry.decode(folder, split)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"expected {entry.name}'s official files in {folder}, found one that cannot be decoded "
            f"({type(error).__name__}: {error}); delete it and fetch it again."
        ) from error
    return x, y, "local folder"


def _download(entry: DataSet, folder: Path, split: str) -> None:
    from harness.vision import torchvision_datasets

    try:
        entry.fetch(torchvision_datasets(), folder, split)
    except Exception as error:
        raise UserError(
            f"expected {entry.name} ({', '.join(entry.files[split])}) in {folder}, found nothing "
            f"and the official address did not answer ({error}); put the files there or set "
            f"GENERALIST_DATA to the folder that has them."
        ) from error


def _check(entry: DataSet, x: np.ndarray, y: np.ndarray) -> None:
    shape = (len(y), entry.channels, *entry.size)
    if x.shape != shape or x.dtype != np.uint8:
        raise expected(
            f"{entry.name} as uint8 {shape}", f"{x.dtype} {x.shape}", "delete and fetch it again"
        )
    present = np.unique(y)
    if len(y) == 0 or present[0] < 0 or present[-1] >= entry.classes:
        raise expected(
            f"{entry.name}'s labels in 0..{entry.classes - 1}",
            f"{present[:1]} to {present[-1:]}",
            "delete and fetch it again",
        )
