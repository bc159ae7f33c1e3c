"""Each method becomes a simpler one when its extra is switched off."""

import pytest
import torch
from conftest import L2, LINF, generator

from baselines.at import AT
from baselines.at_half import HalfHalf
from baselines.nt import NT
from baselines.trades import TRADES
from harness.attacks import PGD, Threat, perturb
from harness.balls import Ball
from harness.errors import UserError
from harness.models import new_model


def gradient_of(objective, batch, clock):
    """Loss, gradient and BatchNorm buffers after one call on a fresh network."""
    model = new_model("tiny", 1, 10, seed=0).train()
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


def test_trades_loss_from_its_formula(batch, clock):
    model = new_model("tiny", 1, 10, seed=0).train()
    found = TRADES(LINF, beta=6.0)(model, batch, clock, generator())
    model = new_model("tiny", 1, 10, seed=0).train()
    attack = PGD.of(LINF, start="normal", loss="kl")
    adversarial = perturb(attack, model, batch.x, batch.y, generator=generator())
    p, q = model(batch.x).softmax(1), model(adversarial).softmax(1)
    natural = -p[torch.arange(len(p)), batch.y].log().mean()
    expected = natural + 6 * (p * (p.log() - q.log())).sum() / len(p)
    torch.testing.assert_close(found, expected)


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
