"""Losses per example, for attacks and methods: the caller sums or averages.

An attack's loss is made in two steps: `ATTACK_LOSSES[name](model, x, y)` fixes what depends on the
clean image, and the result maps the perturbed image's logits to the loss that the attack raises.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.machine.device import torch

AttackLoss = Callable[["torch.Tensor"], "torch.Tensor"]
_KAPPA = 50.0


def cross_entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each example."""
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")


def kl(clean: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(p_clean || p_other) per example, from logits."""
    log_p, log_q = clean.log_softmax(dim=1), other.log_softmax(dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1)


def squared_distance(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """sum_k (p_k - q_k)^2 per example, between distributions."""
    return (p - q).square().sum(dim=1)


def one_hot(y: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Labels as distributions, with the classes and the type of `like`."""
    return torch.nn.functional.one_hot(y, like.shape[1]).to(like.dtype)


def margin(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max_{k != y} z_k - z_y: above 0 if the example is misclassified."""
    own = logits.gather(1, y[:, None]).squeeze(1)
    others = logits.scatter(1, y[:, None], -torch.inf).amax(dim=1)
    return others - own


def dlr(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Difference of logits ratio (Croce & Hein 2020): the margin over z_(1) - z_(3), scale-free."""
    ordered = logits.sort(dim=1, descending=True).values
    return margin(logits, y) / (ordered[:, 0] - ordered[:, min(2, logits.shape[1] - 1)] + 1e-12)


def attack_cross_entropy(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> AttackLoss:
    """Cross-entropy of the perturbed image."""
    return lambda logits: cross_entropy(logits, y)


def attack_kl(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> AttackLoss:
    """KL from the clean prediction, which is computed once."""
    with torch.no_grad():
        clean = model(x)
    return lambda logits: kl(clean, logits)


def attack_margin(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> AttackLoss:
    """Carlini & Wagner's margin with confidence kappa: -max(z_y - max_{k != y} z_k + kappa, 0)."""
    return lambda logits: -(_KAPPA - margin(logits, y)).clamp_min(0)


def attack_squared_label(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> AttackLoss:
    """Squared distance between the prediction and the label."""
    return lambda logits: squared_distance(logits.softmax(dim=1), one_hot(y, logits))


def attack_squared_clean(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> AttackLoss:
    """Squared distance from the clean prediction, which is computed once."""
    with torch.no_grad():
        clean = model(x).softmax(dim=1)
    return lambda logits: squared_distance(logits.softmax(dim=1), clean)


ATTACK_LOSSES: dict[str, Callable[..., AttackLoss]] = {
    "ce": attack_cross_entropy,
    "kl": attack_kl,
    "margin": attack_margin,
    "squared_label": attack_squared_label,
    "squared_clean": attack_squared_clean,
}
# Losses that need one forward pass of the clean image first.
NEED_CLEAN = ("kl", "squared_clean")
