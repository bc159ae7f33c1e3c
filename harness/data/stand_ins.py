"""Stand-in sets that need no download: scikit-learn's digits, and sets made from them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]


def digits(split: str) -> Arrays:
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
    with gzip.open(path, "rt") as text:
        table = np.loadtxt(text, delimiter=",")
    table.flags.writeable = False
    return table


def digits20(split: str) -> Arrays:
    """Digits, bright on dark or dark on bright, 20 classes: a stand-in for CIFAR-100."""
    x, y = digits(split)
    return _with_kinds(x, y, [lambda pixels: 255 - pixels])


def digits40(split: str) -> Arrays:
    """As digits20, each at full or at half contrast, 40 classes: a stand-in for TinyImageNet."""
    x, y = digits(split)
    return _with_kinds(x, y, [lambda pixels: 255 - pixels, lambda pixels: 64 + pixels // 2])


def _with_kinds(x: np.ndarray, y: np.ndarray, changes: list[Callable]) -> Arrays:
    """Apply each change to half of the images; whether it was applied is part of the class."""
    x, classes = x.copy(), 10
    for number, change in enumerate(changes):
        changed = np.random.default_rng(number).random(len(x)) < 0.5
        x[changed] = change(x[changed])
        y = y + classes * changed
        classes *= 2
    return x, y
