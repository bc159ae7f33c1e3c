"""Groups of images and deviations over seeds, against scipy, by hand and by simulation."""

import numpy as np
import pytest
from scipy import stats

from harness.core.statistics import against
from harness.papers.unpaired import deviation_test, subset_test, welch_test


def coins(share, shape, seed=0):
    return np.random.default_rng(seed).random(shape) < share


# --- two groups of images


def test_welch():
    one, other = coins(0.6, (1, 90)), coins(0.4, (1, 410), seed=1)
    found = welch_test(one, other)
    known = stats.ttest_ind(one[0].astype(float), other[0].astype(float), equal_var=False)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    assert found.p == pytest.approx(known.pvalue)
    ends = known.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_groups_without_any_spread():
    right, wrong = np.ones((1, 20), bool), np.zeros((1, 30), bool)
    assert welch_test(right, wrong).p < 1e-5
    assert welch_test(right, wrong).mean == 1
    assert welch_test(wrong, wrong[:, :10]).p == 1
    lone = welch_test(np.ones((1, 1)), coins(0.5, (1, 50)))  # one image has no spread of its own
    assert np.isfinite([lone.low, lone.high, lone.p]).all()


def test_seeds_that_disagree_about_two_groups():
    easy, hard = coins(0.9, (3, 200)), coins(0.7, (3, 200), seed=1)
    assert welch_test(easy, hard).p < 0.05
    hard[0], hard[2] = True, coins(0.4, 200, seed=2)  # once above, once far below
    assert welch_test(easy, hard).p > 0.05


# --- the images that another model gets wrong


def test_the_chosen_images_of_one_seed():
    values, chosen = coins(0.3, (1, 300)), coins(0.5, (1, 300), seed=1)
    assert subset_test(values, chosen, 0.5) == against(values[:, chosen[0]], 0.5)
    everything = np.ones((3, 300), bool)
    many = coins(0.3, (3, 300))
    one, other = subset_test(many, everything, 0.5), against(many, 0.5)
    assert (one.mean, one.low, one.high, one.p) == pytest.approx(
        (other.mean, other.low, other.high, other.p)
    )


def test_other_images_in_each_seed():
    values, chosen = coins(0.3, (3, 900)), coins(0.2, (3, 900), seed=1)
    found = subset_test(values, chosen, 0.5)
    assert found.mean == pytest.approx(values[chosen].mean() - 0.5)
    assert found.low < -0.2 < found.high < 0
    assert found.p < 0.01
    # what was not chosen does not count
    values[~chosen] = True
    assert subset_test(values, chosen, 0.5).mean == pytest.approx(found.mean)


# --- deviation over seeds


def test_a_deviation_by_hand():
    """Every image of a seed has the same value: the number of images adds nothing."""
    values = np.repeat([[50.0], [51.0], [52.0]], 10, axis=1)
    values += np.linspace(-1, 1, 10)  # images differ, seeds do so alike on each
    found = deviation_test(values, 0.5)
    noise = 1 / 10  # the variance within an image is 1, over 10 images
    assert (found.total, found.of_images) == pytest.approx((1, np.sqrt(noise)))
    assert found.of_seeds == pytest.approx(np.sqrt(1 - noise))
    p = 2 * stats.chi2(2).sf(2 * 1 / (0.25 + noise))
    assert found.test.p == pytest.approx(p)
    low = np.sqrt(2 / stats.chi2(2).ppf(0.975) - noise)
    assert found.test.low == pytest.approx(low - 0.5)


def test_seeds_alike_do_not_deviate():
    found = deviation_test(np.repeat(coins(0.5, (1, 100)), 4, axis=0) * 100.0, 0.5)
    assert (found.total, found.of_seeds, found.test.p) == (0, 0, 0)
    assert found.test.mean == -0.5  # below, for certain


def test_few_images_are_not_taken_for_a_deviation_of_seeds():
    """Seeds of one accuracy, 200 images: they differ by points, yet the test seldom rejects upwards."""
    rejected = above = 0
    for seed in range(300):
        values = 100.0 * coins(0.5, (5, 200), seed)
        found = deviation_test(values, 0.5)
        above += found.total > 0.5
        rejected += found.test.p < 0.05 and found.of_seeds > 0.5
    assert above > 290
    assert rejected <= 15
    values = 100.0 * np.stack([coins(share, 200, 7) for share in (0.2, 0.4, 0.6, 0.8)])
    assert deviation_test(values, 0.5).test.p < 0.001
