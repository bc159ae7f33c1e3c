"""Paired statistics against scipy, published values and simulations."""

import numpy as np
import pytest
from scipy import stats

from harness.core.statistics import against, holm, interval, mcnemar, paired, wilson


def rows(*shares, n=400, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.random((1, n)) < share for share in shares]


def test_mcnemar_is_the_binomial_test():
    one, other = rows(0.6, 0.5)
    won, lost = int((one & ~other).sum()), int((~one & other).sum())
    assert mcnemar(one[0], other[0]) == pytest.approx(stats.binomtest(won, won + lost).pvalue)
    assert paired(one, other).p == mcnemar(one[0], other[0])


def test_paired_of_yes_and_no():
    one, other = rows(0.6, 0.5)
    found = paired(one, other)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    assert found.low < found.mean < found.high
    turned = paired(other, one)
    assert (turned.mean, turned.low, turned.high) == pytest.approx(
        (-found.mean, -found.high, -found.low)
    )


def test_agresti_and_min_by_hand():
    # 94 right with both, 16 only with one, 3 only with the other, 7 with neither: n = 120
    one = np.array([[True] * 110 + [False] * 10])
    other = np.array([[True] * 94 + [False] * 16 + [True] * 3 + [False] * 7])
    found = paired(one, other)
    half = 1.959964 * np.sqrt(20 - 13**2 / 122) / 122
    assert (found.low, found.high) == pytest.approx((13 / 122 - half, 13 / 122 + half), abs=1e-6)
    assert found.mean == pytest.approx(13 / 120)


def test_the_interval_covers_as_often_as_it_says():
    """Also where the models hardly differ, where a plain Wald interval would be [0, 0]."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        draws = generator.random((1, 100))
        found = paired(draws < 0.03, draws > 0.98)  # true difference 0.01, 5 % discordant
        covered += found.low <= 0.01 <= found.high
    assert covered >= 935
    equal = paired(draws < 0.5, draws < 0.5)
    assert equal.p == 1
    assert equal.low < 0 < equal.high


def test_means_are_a_paired_t_test():
    generator = np.random.default_rng(2)
    one, other = generator.random((1, 50)), generator.random((1, 50))
    expected = stats.ttest_rel(one[0], other[0])
    found = paired(one, other)
    assert found.p == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_means_that_never_differ_still_have_an_interval():
    values = np.random.default_rng(7).random((1, 60))
    found = paired(values, values)
    assert (found.mean, found.p) == (0, 1)
    assert (found.low, found.high) == pytest.approx((-0.05, 0.05))  # the rule of three
    assert paired(values + 0.1, values).p < 1e-9


def test_seeds_that_disagree_widen_the_interval():
    generator = np.random.default_rng(3)
    image = generator.normal(0.1, 0.2, 500)
    agreeing = np.stack([image] * 3) + generator.normal(0, 0.01, (3, 500))
    disagreeing = agreeing + np.array([[-0.2], [0.0], [0.2]])
    none = np.zeros((3, 500))
    assert paired(agreeing, none).p < 1e-6
    assert paired(disagreeing, none).p > 0.05
    assert paired(disagreeing, none).mean == pytest.approx(paired(agreeing, none).mean)


def test_seeds_with_nothing_between_them_are_the_images_alone():
    one = np.random.default_rng(4).normal(0.1, 1, (1, 300))
    single = paired(one, np.zeros((1, 300)))
    double = paired(np.repeat(one, 2, axis=0), np.zeros((2, 300)))
    assert (double.low, double.high, double.p) == pytest.approx((single.low, single.high, single.p))


def test_false_alarms_over_images_and_seeds_stay_below_five_percent():
    generator = np.random.default_rng(5)
    alarms = 0
    for _ in range(1000):
        seeds, images = generator.normal(0, 0.02, (4, 1)), generator.normal(0, 0.3, (1, 200))
        values = seeds + images + generator.normal(0, 0.3, (4, 200))
        alarms += paired(values, np.zeros_like(values)).p < 0.05
    assert alarms <= 65


def test_against_a_number():
    (values,) = rows(0.55, n=200)
    found = against(values, 0.5)
    z = (values.mean() - 0.5) / np.sqrt(0.25 / 200)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(z)))
    interval = stats.binomtest(int(values.sum()), 200).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((interval.low - 0.5, interval.high - 0.5))
    graded = np.random.default_rng(6).random((1, 80))
    assert against(graded, 0.4).p == pytest.approx(stats.ttest_1samp(graded[0], 0.4).pvalue)


def test_holm_against_known_values():
    # Holm's procedure on four p-values: 4 x 0.005, 3 x 0.01, 2 x 0.03, then never smaller
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_an_interval_over_seeds_covers_other_trainings():
    """Two trainings of 88 and 27 %: what their 2,000 verdicts would allow if pooled is no interval."""
    images = np.arange(1000)
    apart = np.stack([images < 882, images < 270])
    low, high = interval(apart)
    assert (low, high) == (0, 1)
    alike = np.stack([images < 868, images[::-1] < 874])
    low, high = interval(alike)
    assert 0.5 < low < 0.85
    assert 0.89 < high <= 1
    assert interval(alike[:1]) == wilson(868, 1000)


def test_seeds_that_agree_image_by_image_have_one_seed_s_interval_at_least():
    flags = np.arange(1000) < 600
    low, high = interval(np.stack([flags] * 3))
    assert low <= wilson(600, 1000)[0]
    assert high >= wilson(600, 1000)[1]


def test_a_difference_of_shares_is_at_most_one_however_far_seeds_are_apart():
    images = np.arange(1000)
    one = np.stack([images < 133, images < 0])
    other = np.stack([images < 868, images < 874])
    found = paired(one, other)
    assert found.low == -1
    assert -0.9 < found.mean < found.high
