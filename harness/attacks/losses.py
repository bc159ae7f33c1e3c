"""Losses that attacks climb and methods descend, per example: the caller sums or averages."""

from __future__ import annotations

from collections.abc import Callable

from harness.core.lazy import torch


def cross_entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, y, reduction="none")


def kl(clean: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(p_clean || p_other) per example, from logits."""
    log_p, log_q = clean.log_softmax(dim=1), other.log_softmax(dim=1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=1)


def squared_distance(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """sum_k (p_k - q_k)^2 per example, between distributions."""
    return (p - q).square().sum(dim=1)


def one_hot(y: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.one_hot(y, like.shape[1]).to(like.dtype)


Climb = Callable[["torch.Tensor"], "torch.Tensor"]


def climb_cross_entropy(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Climb:
    return lambda logits: cross_entropy(logits, y)


def climb_kl(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Climb:
    """Distance from the clean prediction, which stays fixed while the attack moves."""
    with torch.no_grad():
        clean = model(x)
    return lambda logits: kl(clean, logits)


def climb_squared_label(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Climb:
    return lambda logits: squared_distance(logits.softmax(dim=1), one_hot(y, logits))


def climb_squared_clean(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Climb:
    with torch.no_grad():
        clean = model(x).softmax(dim=1)
    return lambda logits: squared_distance(logits.softmax(dim=1), clean)


_KAPPA = 50.0


def margin(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """max_{k != y} z_k - z_y: above 0 once the example is lost."""
    own = logits.gather(1, y[:, None]).squeeze(1)
    others = logits.scatter(1, y[:, None], -torch.inf).amax(dim=1)
    return others - own


def climb_margin(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Climb:
    """Carlini & Wagner's margin with confidence kappa: -max(z_y - max_{k != y} z_k + kappa, 0)."""
    return lambda logits: -(_KAPPA - margin(logits, y)).clamp_min(0)


def dlr(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Difference of logits ratio (Croce & Hein 2020): the margin over z_(1) - z_(3), scale-free."""
    ordered = logits.sort(dim=1, descending=True).values
    return margin(logits, y) / (ordered[:, 0] - ordered[:, min(2, logits.shape[1] - 1)] + 1e-12)


# What an attack maximises: from (model, x, y) to a function of the perturbed image's logits.
CLIMBS: dict[str, Callable[..., Climb]] = {
    "ce": climb_cross_entropy,
    "kl": climb_kl,
    "margin": climb_margin,
    "squared_label": climb_squared_label,
    "squared_clean": climb_squared_clean,
}
