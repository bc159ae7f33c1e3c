"""Tests where two models on the same images are not what is compared.

`harness.core.statistics` has the paired tests. Here: one model on two groups of images, one model on
some of the images against a constant, and the deviation over seeds. Rows are seeds, columns images.
"""

import math
from dataclasses import dataclass

import numpy as np

from harness.core.statistics import Difference, against, student


def welch_test(one: np.ndarray, other: np.ndarray) -> Difference:
    """The mean on one group of images minus the mean on another group: Welch's t test.

    Several seeds: the variance of their differences is added, as for two models on the same images.
    """
    one, other = np.asarray(one, float), np.asarray(other, float)
    gaps = one.mean(axis=1) - other.mean(axis=1)  # seed by seed
    samples = [group.mean(axis=0) for group in (one, other)] + [gaps]
    spreads = [(float(s.var(ddof=1)) / len(s), len(s) - 1) for s in samples if len(s) > 1]
    mean, variance = float(gaps.mean()), sum(spread for spread, _ in spreads)
    if variance == 0:  # no spread: the rule of three for the smaller group, and a sign test
        n = min(one.shape[1], other.shape[1])
        return Difference(mean, mean - 3 / n, mean + 3 / n, 1.0 if mean == 0 else 2.0 ** (1 - n))
    freedom = variance**2 / sum(spread**2 / degrees for spread, degrees in spreads)
    return student(mean, variance, freedom)


def subset_test(values: np.ndarray, chosen: np.ndarray, threshold: float) -> Difference:
    """The mean over the chosen images minus a constant; seeds may have chosen different images.

    One seed: the score test over these images. Several: the mean is a ratio. It equals the threshold
    where the mean of chosen * (value - threshold) over all images is 0, and that is tested.
    """
    if len(values) == 1:
        return against(values[:, chosen[0]], threshold)
    excess = against(np.where(chosen, np.asarray(values, float) - threshold, 0.0), 0.0)
    share = float(chosen.mean())
    return Difference(excess.mean / share, excess.low / share, excess.high / share, excess.p)


@dataclass(frozen=True)
class Deviation:
    """The deviation of seeds' means: in total, due to few images, and of the seeds without that."""

    total: float
    of_images: float
    of_seeds: float
    test: Difference  # of_seeds against the limit


def deviation_test(values: np.ndarray, limit: float) -> Deviation:
    """The deviation over seeds against a limit: chi-squared interval and test.

    On few images two seeds differ although on all images they would not. So the variance of their
    means is tested against limit^2 plus the variance within an image over the number of images.
    """
    from scipy.special import chdtr, chdtri  # here, as in statistics.py

    values = np.asarray(values, float)
    degrees, n = len(values) - 1, values.shape[1]
    total = float(values.mean(axis=1).var(ddof=1))
    noise = float(values.var(axis=0, ddof=1).mean()) / n
    bounds = [total * degrees / float(chdtri(degrees, q)) for q in (0.025, 0.975)]
    own, low, high = (math.sqrt(max(0.0, bound - noise)) for bound in (total, *bounds))
    below = float(chdtr(degrees, degrees * total / (limit**2 + noise)))
    test = Difference(own - limit, low - limit, high - limit, 2 * min(below, 1 - below))
    return Deviation(math.sqrt(total), math.sqrt(noise), own, test)
