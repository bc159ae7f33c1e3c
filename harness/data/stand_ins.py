"""Stand-ins that need no download: scikit-learn's digits, and sets composed of them."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]


def digits(split: str) -> Arrays:
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


def digits100(split: str) -> Arrays:
    """Two digits side by side, 100 classes: a stand-in for CIFAR-100. Splits share no digit."""
    return _pairs(split, 500 if split == "test" else 1500, seed=1)


def digits200(split: str) -> Arrays:
    """Pairs, bright on dark or dark on bright, 200 classes: a stand-in for TinyImageNet."""
    x, y = _pairs(split, 2000 if split == "test" else 4000, seed=2)
    inverted = np.arange(len(x)) % 2 == 1
    x[inverted] = 255 - x[inverted]
    return x, y + 100 * inverted


def _pairs(split: str, count: int, seed: int) -> Arrays:
    x, y = digits(split)
    rng = np.random.default_rng(seed)
    left, right = rng.integers(len(x), size=count), rng.integers(len(x), size=count)
    return np.concatenate([x[left], x[right]], axis=3), 10 * y[left] + y[right]
