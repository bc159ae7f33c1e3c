from fractions import Fraction

import pytest
import torch
from conftest import generator

from harness.attacks.attack import ORDERS
from harness.attacks.balls import Ball, into, project, random_point, steepest
from harness.core.errors import UserError

NORMS = ["linf", "l2", "l1"]


def size(norm: str, delta: torch.Tensor) -> torch.Tensor:
    return delta.flatten(1).norm(p=ORDERS[norm], dim=1)


@pytest.mark.parametrize("norm", NORMS)
def test_projection_is_inside_idempotent_and_keeps_inner_points(norm):
    delta = torch.randn(20, 3, 8, 8, generator=generator())
    projected = project(norm, delta, 0.5)
    assert (size(norm, projected) <= 0.5 + 1e-6).all()
    torch.testing.assert_close(project(norm, projected, 0.5), projected)
    inner = delta * 1e-4
    torch.testing.assert_close(project(norm, inner, 0.5), inner)


@pytest.mark.parametrize("norm", NORMS)
def test_projection_is_the_nearest_point(norm):
    delta = torch.randn(1, 6, generator=generator()) * 3
    nearest = project(norm, delta, 1.0)
    others = project(norm, torch.randn(2000, 6, generator=generator(1)) * 2, 1.0)
    assert (delta - nearest).norm() <= (delta - others).norm(dim=1).min() + 1e-6


@pytest.mark.parametrize("norm", NORMS)
def test_steepest_direction_beats_all_others_of_its_length(norm):
    gradient = torch.randn(1, 6, generator=generator())
    best = steepest(norm, gradient)
    assert size(norm, best).item() == pytest.approx(1, abs=1e-5)
    others = project(norm, torch.randn(2000, 6, generator=generator(1)) * 5, 1.0)
    assert (best * gradient).sum() >= (others * gradient).sum(dim=1).max() - 1e-6


@pytest.mark.parametrize("norm", NORMS)
def test_random_points_fill_ball_and_box(norm):
    x = torch.rand(200, 1, 4, 4, generator=generator())
    points = random_point(norm, x, 0.3, generator(1))
    assert points.min() >= 0
    assert points.max() <= 1
    sizes = size(norm, points - x)
    assert (sizes <= 0.3 + 1e-6).all()
    assert sizes.max() > 0.2
    assert torch.equal(points, random_point(norm, x, 0.3, generator(1)))


@pytest.mark.parametrize("norm", NORMS)
def test_zero_gradient_and_zero_radius_are_harmless(norm):
    x = torch.rand(3, 1, 4, 4, generator=generator())
    assert torch.isfinite(steepest(norm, torch.zeros_like(x))).all()
    assert torch.equal(into(norm, x, x + 1, 0.0), x)


def test_the_l1_projection_on_ball_and_box_is_the_nearest_point():
    """Against a brute-force solver: bisection on the shrinkage, in float64."""
    x = torch.rand(30, 1, 4, 4, generator=generator(), dtype=torch.float64)
    candidate = x + torch.randn(x.shape, generator=generator(1), dtype=torch.float64)
    for radius in (0.01, 0.5, 2.0, 100.0):
        delta = (candidate - x).flatten(1)
        room = torch.where(delta > 0, 1 - x.flatten(1), x.flatten(1))
        low, high = torch.zeros(30, 1, dtype=torch.float64), delta.abs().amax(1, keepdim=True)
        for _ in range(100):
            middle = (low + high) / 2
            kept = torch.minimum((delta.abs() - middle).clamp_min(0), room)
            too_large = kept.sum(1, keepdim=True) > radius
            low, high = torch.where(too_large, middle, low), torch.where(too_large, high, middle)
        expected = delta.sign() * torch.minimum((delta.abs() - high).clamp_min(0), room)
        found = into("l1", x, candidate, radius) - x
        torch.testing.assert_close(found.flatten(1), expected, atol=1e-9, rtol=0)


def test_the_sparse_l1_step_keeps_its_length():
    gradient = torch.randn(3, 1, 10, 10, generator=generator())
    step = steepest("l1", gradient, keep=0.2)
    assert (step != 0).flatten(1).sum(1).tolist() == [20, 20, 20]
    torch.testing.assert_close(step.abs().flatten(1).sum(1), torch.ones(3))


def test_a_radius_per_pixel_is_respected():
    x, radius = torch.full((2, 1, 2, 2), 0.5), torch.tensor([[0.1, 0.2], [0.3, 0.0]])
    moved = into("linf", x, x + 1, radius)
    torch.testing.assert_close(moved - x, radius.expand_as(x))


def test_a_slip_of_scale_is_refused():
    with pytest.raises(UserError, match=r"found eps = 8; write 8/255"):
        Ball("linf", Fraction(8))
    with pytest.raises(UserError, match="did you mean 'linf'"):
        Ball("linff", Fraction(8, 255))
