"""The data sets: what each looks like, where it comes from, how its files are read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.decoders import read_cifar_batches, read_idx, read_svhn

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class DataSet:
    name: str
    classes: int
    channels: int
    size: tuple[int, int]
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)  # split -> official files
    read: Callable[[list[Path]], Arrays] | None = None
    official: Callable[[Any, Path, bool], Any] | None = None  # torchvision's downloader
    embedded: Callable[[str], Arrays] | None = None  # ships inside a dependency
    flip: bool = True  # is a mirrored image still of its class?

    def present(self, folder: Path, split: str) -> bool:
        return all((folder / file).exists() for file in self.files[split])

    def decode(self, folder: Path, split: str) -> Arrays:
        assert self.read is not None
        return self.read([folder / file for file in self.files[split]])

    def fetch(self, datasets: Any, folder: Path, split: str) -> None:
        assert self.official is not None
        self.official(datasets, folder, split == "train")


def _digits(split: str) -> Arrays:
    """scikit-learn's 1,797 handwritten digits, 8x8, 17 grey levels; 500 are the test set.

    The file is read from where the package lies: importing scikit-learn costs 1.5 s per process.
    """
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as text:
        table = np.loadtxt(text, delimiter=",")
    x = np.round(table[:, :64] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(x))
    rows = order[:500] if split == "test" else order[500:]
    return x[rows], table[rows, 64].astype(np.int64)


def _digits100(split: str) -> Arrays:
    """Two digits side by side, 100 classes: a stand-in for CIFAR-100. Splits share no digit."""
    x, y = _digits(split)
    count = 500 if split == "test" else 1500
    rng = np.random.default_rng(1)
    left, right = rng.integers(len(x), size=count), rng.integers(len(x), size=count)
    return np.concatenate([x[left], x[right]], axis=3), 10 * y[left] + y[right]


SETS: dict[str, DataSet] = {
    "digits": DataSet("digits", 10, 1, (8, 8), embedded=_digits, flip=False),
    "digits100": DataSet("digits100", 100, 1, (8, 16), embedded=_digits100, flip=False),
    "mnist": DataSet(
        "mnist",
        10,
        1,
        (28, 28),
        {
            "train": (
                "MNIST/raw/train-images-idx3-ubyte",
                "MNIST/raw/train-labels-idx1-ubyte",
            ),
            "test": ("MNIST/raw/t10k-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte"),
        },
        read=read_idx,
        official=lambda sets, folder, train: sets.MNIST(folder, train, download=True),
        flip=False,
    ),
    "svhn": DataSet(
        "svhn",
        10,
        3,
        (32, 32),
        {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)},
        read=read_svhn,
        official=lambda sets, folder, train: sets.SVHN(
            folder, "train" if train else "test", download=True
        ),
        flip=False,
    ),
    "cifar10": DataSet(
        "cifar10",
        10,
        3,
        (32, 32),
        {
            "train": tuple(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
            "test": ("cifar-10-batches-py/test_batch",),
        },
        read=lambda files: read_cifar_batches(files, "labels"),
        official=lambda sets, folder, train: sets.CIFAR10(folder, train, download=True),
    ),
    "cifar100": DataSet(
        "cifar100",
        100,
        3,
        (32, 32),
        {"train": ("cifar-100-python/train",), "test": ("cifar-100-python/test",)},
        read=lambda files: read_cifar_batches(files, "fine_labels"),
        official=lambda sets, folder, train: sets.CIFAR100(folder, train, download=True),
    ),
}
