"""Interpolated adversarial training (IAT): Lamb et al., AISec 2019 (arXiv 1906.06784), Algorithm 1.

PGD attacks the unmixed pair (x, y). Then (x, y) is mixed up with lambda_1 ~ Beta(a, a) and one
permutation, (x', y) with an independent lambda_2 and permutation;
L = (mixed CE on the clean mixture + mixed CE on the adversarial mixture) / 2, a = 1.

Certain: attack before mixing, two independent mixtures, the mean of both losses.
Guess: one lambda per batch rather than per example; all of the official recipe.
Compared: with ndb796's implementation (the authors' own was not found), one step in float64: 5e-16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baselines.at import norm_slug
from harness.attacks.attack import Threat, perturb
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, within


@dataclass(frozen=True)
class IAT:
    threat: Threat
    alpha: float = 1.0

    REVISION: ClassVar[int] = 1
    NEEDS_WHOLE_BATCH: ClassVar[str] = "mixes images of the whole batch"

    def __post_init__(self) -> None:
        within("alpha", self.alpha, 1e-3)  # no Beta(0, 0)

    @property
    def slug(self) -> str:
        return norm_slug("iat", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        adversarial = perturb(PGD.of(self.threat), model, batch.x, batch.y, generator=generator)
        losses = []
        for images in (batch.x, adversarial):
            lam, order = draw_beta(self.alpha, generator), shuffle(len(batch.y), generator)
            losses.append(mixed_loss(model, images, batch.y, lam, order))
        return (losses[0] + losses[1]) / 2


def mixed_loss(
    model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, lam: float, order: torch.Tensor
) -> torch.Tensor:
    """Mixup (Zhang et al. 2018): the loss of a mixed image is the mixture of two losses."""
    logits = model(lam * x + (1 - lam) * x[order])
    return (lam * cross_entropy(logits, y) + (1 - lam) * cross_entropy(logits, y[order])).mean()


def draw_beta(alpha: float, generator: torch.Generator) -> float:
    pair = torch.full((2,), alpha, device=generator.device)
    gammas = torch._standard_gamma(pair, generator=generator)
    return float(gammas[0] / gammas.sum())


def shuffle(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randperm(count, generator=generator, device=generator.device)
