"""Fronts: areas and gaps that can be computed by hand, and intervals over images."""

import numpy as np
import pytest

from harness.core.fronts import RESAMPLES, area, bootstrap, gaps, resampled


@pytest.mark.parametrize(
    ("points", "found"),
    [
        ([(1, 1)], 1),
        ([(0.5, 0.4)], 0.2),
        ([(1, 0), (0, 1)], 0.5),  # a coin reaches all between two models
        ([(1, 0), (0, 1), (0.4, 0.4)], 0.5),  # and so it is worth as much without a model below
        ([(0.8, 0.2), (0.4, 0.6)], 0.4 * 0.6 + 0.4 * (0.6 + 0.2) / 2),
    ],
)
def test_the_area_of_a_front(points, found):
    assert area(np.array(points, float)) == pytest.approx(found)
    assert area(np.array(points[::-1], float)) == pytest.approx(found)


def test_gaps_are_what_a_front_lacks():
    line = np.array([(1.0, 0.0), (0.0, 1.0)])
    points = np.array([(0.5, 0.5), (0.6, 0.6), (0.4, 0.4), (1.2, -3.0)])
    assert gaps(points, line) == pytest.approx([0, 0.1, -0.1, 0.2])
    generator = np.random.default_rng(1)
    points, front = generator.random((50, 2)), generator.random((50, 6, 2))
    w = np.linspace(0, 1, 5001)
    leads = w[:, None] * points[:, 0] + (1 - w[:, None]) * points[:, 1]
    leads -= (w[:, None, None] * front[..., 0] + (1 - w[:, None, None]) * front[..., 1]).max(axis=-1)
    assert gaps(points, front) == pytest.approx(leads.max(axis=0), abs=1e-3)
    own = gaps(front[:, 0], front)  # no model lies above its own front
    assert (own <= 1e-9).all()


def test_resamples_are_the_same_for_all_and_as_wide_as_they_should_be():
    right = (np.arange(400) < 100)[None].repeat(2, axis=0).reshape(1, 2, 400)
    drawn = resampled(right.astype(float))
    assert drawn.shape == (RESAMPLES, 1, 2)
    assert np.array_equal(drawn[..., 0], drawn[..., 1])
    assert drawn.std() == pytest.approx(np.sqrt(0.25 * 0.75 / 400), rel=0.05)
    found = bootstrap(0.25, drawn[:, 0, 0])
    assert (found.mean, found.p) == (0.25, pytest.approx(1 / 1000))
    assert found.low < 0.22 < 0.28 < found.high
    assert bootstrap(0.0, drawn[:, 0, 0] - drawn[:, 0, 1]).p == 1
