"""Uncertainty of an accuracy, and of a difference between two models on the same images."""

from __future__ import annotations

import math

import numpy as np

_Z95 = 1.959963984540054


def wilson(successes: float, n: int, z: float = _Z95) -> tuple[float, float]:
    """Wilson's 95 % interval for a proportion: honest near 0 and 1, where robust accuracies live."""
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar(one: np.ndarray, other: np.ndarray) -> float:
    """The exact two-sided p-value that two models (or attacks) are equally often right.

    Only images on which they differ count; under the null each falls either way like a coin.
    """
    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    n = only_one + only_other
    k = np.arange(1, min(only_one, only_other) + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((n - k + 1) / k))])  # of n choose k
    return min(1.0, 2 * float(np.exp(log_ways - n * math.log(2)).sum()))
