"""Each method becomes a simpler one when its extra is switched off."""

import dataclasses

import pytest
import torch
from conftest import L2, LINF, generator

from baselines.at import AT
from baselines.at_half import HalfHalf
from baselines.nt import NT
from baselines.trades import TRADES
from harness.attacks.attack import Threat, perturb
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.core.errors import UserError
from harness.models.networks import new_model


def gradient_of(objective, batch, clock):
    """Loss, gradient and BatchNorm buffers after one call on a fresh network of the batch's type."""
    model = new_model("tiny", 1, 10, seed=0).to(batch.x.dtype).train()
    loss = objective(model, batch, clock, generator())
    loss.backward()
    gradients = torch.cat([p.grad.flatten() for p in model.parameters()])
    buffers = torch.cat([b.flatten().float() for b in model.buffers()])
    return loss.detach(), gradients, buffers


def assert_same(one, other, batch, clock):
    for a, b in zip(gradient_of(one, batch, clock), gradient_of(other, batch, clock), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("threat", [LINF, L2])
def test_trades_without_beta_is_nt(threat, batch, clock):
    assert_same(TRADES(threat, beta=0.0), NT(), batch, clock)


@pytest.mark.parametrize("threat", [LINF, L2])
def test_half_half_with_all_weight_on_one_side(threat, batch, clock):
    assert_same(HalfHalf(threat, weights=(0.0, 1.0)), AT(threat), batch, clock)
    assert_same(HalfHalf(threat, weights=(1.0, 0.0)), NT(), batch, clock)


def test_at_without_a_radius_is_nt(batch, clock):
    still = Threat(Ball("linf", LINF.ball.eps * 0), LINF.step, LINF.steps)
    assert_same(AT(still), NT(), batch, clock)


def test_trades_step_from_its_formula(batch, clock):
    """Loss, gradient and running statistics, as the released code computes them."""
    batch = dataclasses.replace(batch, x=batch.x.double())  # no rounding turns a sign
    eps, step, draws = LINF.ball.radius, float(LINF.step), generator()
    found = gradient_of(TRADES(LINF, beta=6.0), batch, clock)

    def kl_sum(p, q):
        return (p * (p.log() - q.log())).sum()

    model = new_model("tiny", 1, 10, seed=0).double().eval()
    clean = model(batch.x).softmax(1).detach()
    x = batch.x + 0.001 * torch.randn(batch.x.shape, generator=draws, dtype=torch.float64)
    assert x.min() < 0  # the start may leave the box
    for _ in range(LINF.steps):
        x.requires_grad_(True)
        (gradient,) = torch.autograd.grad(kl_sum(clean, model(x).softmax(1)), x)
        x = x.detach() + step * gradient.sign()
        x = torch.minimum(torch.maximum(x, batch.x - eps), batch.x + eps).clamp(0, 1)
    model.train()
    p, q, again = (model(images).softmax(1) for images in (batch.x, x, batch.x))
    natural = -p[torch.arange(len(p)), batch.y].log().mean()
    loss = natural + 6 * kl_sum(again, q) / len(p)
    loss.backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    buffers = torch.cat([b.flatten().float() for b in model.buffers()])
    torch.testing.assert_close(found[0], loss.detach())
    torch.testing.assert_close(found[1], gradients)
    torch.testing.assert_close(found[2], buffers)


def test_half_half_averages_rather_than_sums(batch, clock):
    model = new_model("tiny", 1, 10, seed=0).train()
    found = HalfHalf(LINF)(model, batch, clock, generator())
    model = new_model("tiny", 1, 10, seed=0).train()
    adversarial = perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator())
    logits = [
        model(x).log_softmax(1)[torch.arange(len(batch.y)), batch.y] for x in (batch.x, adversarial)
    ]
    torch.testing.assert_close(found, -(logits[0].mean() + logits[1].mean()) / 2)


def test_weights_that_do_not_sum_to_one_are_refused():
    with pytest.raises(UserError, match="sum to 1"):
        HalfHalf(LINF, weights=(1.0, 1.0))
