"""Uncertainty where a paired test does not do: other images, some images, a spread over seeds.

`harness.statistics` compares two models on the same images. Here are one model (or one lead) on two
groups of images, one on the images that another model gets wrong, and the deviation of several seeds.
As there, rows are seeds and columns images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtri, stdtr, stdtrit

from harness.core.statistics import Difference, against


def apart(one: np.ndarray, other: np.ndarray) -> Difference:
    """The mean on one group of images minus the mean on another group: Welch's t test.

    Several seeds: the variance of their differences is added, as for two models on the same images.
    """
    one, other = np.asarray(one, float), np.asarray(other, float)
    gaps = one.mean(axis=1) - other.mean(axis=1)  # seed by seed
    parts = [
        (float(group.mean(axis=0).var(ddof=1)) / group.shape[1], group.shape[1] - 1)
        for group in (one, other)
        if group.shape[1] > 1
    ]
    if len(gaps) > 1:
        parts.append((float(gaps.var(ddof=1)) / len(gaps), len(gaps) - 1))
    mean, variance = float(gaps.mean()), sum(part for part, _ in parts)
    if (
        variance == 0
    ):  # each group all alike: the rule of three for the smaller one, and a sign test
        n = min(one.shape[1], other.shape[1])
        return Difference(mean, mean - 3 / n, mean + 3 / n, 1.0 if mean == 0 else 2.0 ** (1 - n))
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    p = 2 * float(stdtr(freedom, -abs(mean) / math.sqrt(variance)))
    return Difference(mean, mean - half, mean + half, p)


def among(values: np.ndarray, chosen: np.ndarray, threshold: float) -> Difference:
    """The mean over the chosen images minus a number; each seed may have chosen other images.

    One seed: the score test over these images. Several: the mean is a ratio, and equals the threshold
    where the mean of chosen * (value - threshold) over all images is 0, which is what is tested.
    """
    if len(values) == 1:
        return against(values[:, chosen[0]], threshold)
    excess = against(np.where(chosen, np.asarray(values, float) - threshold, 0.0), 0.0)
    share = float(chosen.mean())
    return Difference(excess.mean / share, excess.low / share, excess.high / share, excess.p)


@dataclass(frozen=True)
class Deviation:
    """Of several seeds' means: as found, what the number of images adds to it, and without that."""

    found: float
    of_images: float
    of_seeds: float
    against_limit: Difference


def deviation(values: np.ndarray, limit: float) -> Deviation:
    """How far seeds deviate, against a number: chi-squared interval and test.

    On few images two seeds differ although on all images they would not. So the variance of their
    means is tested against limit^2 plus the variance within an image over the number of images.
    """
    values = np.asarray(values, float)
    degrees, n = len(values) - 1, values.shape[1]
    total = float(values.mean(axis=1).var(ddof=1))
    noise = float(values.var(axis=0, ddof=1).mean()) / n
    own, low, high = (
        math.sqrt(max(0.0, bound - noise))
        for bound in (total, *(total * degrees / float(chdtri(degrees, q)) for q in (0.025, 0.975)))
    )
    below = float(chdtr(degrees, degrees * total / (limit**2 + noise)))
    test = Difference(own - limit, low - limit, high - limit, 2 * min(below, 1 - below))
    return Deviation(math.sqrt(total), math.sqrt(noise), own, test)
