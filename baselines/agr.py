"""Adaptive gradient reconstruction (AGR): Tong et al., 2024.

Plain AT until 155/200 of the run. From then on, for each parameter tensor, with g_c the gradient of
CE(f(x), y), g_a that of CE(f(x'), y) and s = cos(g_a, g_c):
    s <= 0:  g = g_a - <g_a, g_c> / |g_c|^2 g_c        (the part of g_a that does not hurt g_c)
    s > 0:   g = s g_c + (1 - s) g_a
then |g| is clipped to 0.1 per tensor; SGD adds the weight decay after that.

Certain: both cases, the clipping, the start at 155 of 200 (read in the released code).
Guess: the same share of the budget in the unified recipe. x and x' are forwarded separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from baselines.at import AT, norm_slug
from harness.attacks import PGD, Threat, perturb
from harness.contracts import Batch, Clock, Lab
from harness.lazy import torch
from harness.learner import Average, Optim, Single, finite
from harness.losses import cross_entropy


@dataclass(frozen=True)
class AGR:
    threat: Threat
    optim: Optim
    average: Average | None = None
    begin: Fraction = Fraction(155, 200)
    clip: float = 0.1

    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return norm_slug("agr", self.threat)

    def start(self, lab: Lab) -> AGRTraining:
        return AGRTraining(self, lab)


class AGRTraining:
    def __init__(self, agr: AGR, lab: Lab) -> None:
        self.agr = agr
        self.learner = Single(AT(agr.threat), agr.optim, agr.average).start(lab)

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        if clock.progress < float(self.agr.begin):
            return self.learner.step(batch, clock)
        model, generator = self.learner.model.train(), self.learner.generator
        attack = PGD.of(self.agr.threat)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator)
        parameters = list(model.parameters())
        losses, gradients = [], []
        for images in (adversarial, batch.x):
            loss = cross_entropy(model(images), batch.y).mean()
            losses.append(finite(loss, clock, self.agr.slug))
            gradients.append(torch.autograd.grad(loss, parameters))
        for parameter, robust, natural in zip(parameters, *gradients, strict=True):
            parameter.grad = clipped(reconstructed(robust, natural), self.agr.clip)
        lr = self.agr.optim.lr_at(clock)
        self.learner.apply(clock, lr)
        return {"loss": losses[0], "lr": lr}

    def deployed(self) -> torch.nn.Module:
        return self.learner.deployed()

    def state_dict(self) -> dict[str, Any]:
        return self.learner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.learner.load_state_dict(state)


def reconstructed(robust: torch.Tensor, natural: torch.Tensor) -> torch.Tensor:
    """One tensor's gradient from its robust and its natural one; without a natural one, the robust."""
    inner, squared = (robust * natural).sum(), natural.square().sum()
    if squared == 0:
        return robust
    cosine = inner / (squared.sqrt() * robust.norm()).clamp_min(1e-12)
    if cosine <= 0:
        return robust - inner / squared * natural
    return cosine * natural + (1 - cosine) * robust


def clipped(gradient: torch.Tensor, largest: float) -> torch.Tensor:
    return gradient * (largest / gradient.norm().clamp_min(1e-12)).clamp(max=1.0)
