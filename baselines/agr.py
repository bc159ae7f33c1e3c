"""Adaptive gradient reconstruction (AGR): Tong et al., 2024.

AT until 155/200 of the run, in which the clean images too pass through BatchNorm. From then on, for
each parameter tensor, with g_c the gradient of CE(f(x), y), g_a that of CE(f(x'), y) and s =
cos(g_a, g_c):
    s <= 0:  g = g_a - <g_a, g_c> / |g_c|^2 g_c        (the part of g_a that does not hurt g_c)
    s > 0:   g = s g_c + (1 - s) g_a
then |g| is clipped to 0.1 per tensor; SGD adds the weight decay after that. x is forwarded before
x'. x' is PGD whose iterates stay in the ball but may leave the box, up to the last one.

Certain: both cases, the clipping, the start at 155 of 200, order of forward passes, the attack
(read in the released code).
Guess: the same share of the budget in the unified recipe.
Compared: with train.py and attack.py of RUIYUN-ML/AGR, one step in float64: 6e-16 for a given x';
the attack and running statistics before the start differed then and follow it now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from baselines.at import AT, norm_slug
from harness.attacks.attack import Threat, input_gradient, perturb
from harness.attacks.balls import Ball, project, random_point, steepest
from harness.attacks.losses import attack_cross_entropy, cross_entropy
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab, within
from harness.training.learner import Average, Learner, Optim, Single, finite


@dataclass(frozen=True)
class UnboxedPGD:
    """PGD whose iterates may leave the box; only the result is clipped."""

    threat: Threat

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.threat.ball,)

    @property
    def slug(self) -> str:
        return f"unboxed_pgd{self.threat.steps}_{self.threat.norm}"

    def __call__(
        self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, *, generator: torch.Generator
    ) -> torch.Tensor:
        ball, step = self.threat.ball, float(self.threat.step)
        attack_loss = attack_cross_entropy(model, x, y)
        now = random_point(ball.norm, x, ball.radius, generator)
        for _ in range(self.threat.steps):
            moved = now + step * steepest(ball.norm, input_gradient(model, now, attack_loss))
            now = x + project(ball.norm, moved - x, ball.radius)
        return now.clamp(0, 1)


@dataclass(frozen=True)
class AGR:
    threat: Threat
    optim: Optim
    average: Average | None = None
    begin: Fraction = Fraction(155, 200)
    clip: float = 0.1

    # 2: clean images always pass through BatchNorm, and first; iterates may leave the box
    REVISION: ClassVar[int] = 2

    def __post_init__(self) -> None:
        within("begin", self.begin, 0, 1)
        within("clip", self.clip, 0)

    @property
    def slug(self) -> str:
        return norm_slug("agr", self.threat)

    def start(self, lab: Lab) -> AGRTraining:
        return AGRTraining(self, lab)


class AGRTraining(Learner):
    def __init__(self, agr: AGR, lab: Lab) -> None:
        super().__init__(Single(AT(agr.threat), agr.optim, agr.average), lab)
        self.agr = agr

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:  # type: ignore[override]
        model, attack = self.model.train(), UnboxedPGD(self.agr.threat)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=self.generator)
        begun = clock.progress >= float(self.agr.begin)
        parameters = list(model.parameters())
        with torch.set_grad_enabled(begun):
            natural = cross_entropy(model(batch.x), batch.y).mean()
        robust = cross_entropy(model(adversarial), batch.y).mean()
        value = finite(robust, clock, self.agr.slug)
        gradients = torch.autograd.grad(robust, parameters)
        if begun:
            pairs = zip(gradients, torch.autograd.grad(natural, parameters), strict=True)
            gradients = tuple(clipped(reconstructed(a, c), self.agr.clip) for a, c in pairs)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        lr = self.agr.optim.lr_at(clock)
        self.apply(clock, lr)
        return {"loss": value, "lr": lr}


def reconstructed(robust: torch.Tensor, natural: torch.Tensor) -> torch.Tensor:
    """The gradient of one tensor from its robust and its natural gradient.

    Both cases are one sum with chosen weights: to branch, a GPU would have to wait, twice per tensor.
    """
    inner, squared = (robust * natural).sum(), natural.square().sum()
    cosine = inner / (squared.sqrt() * robust.norm()).clamp_min(1e-12)
    none = squared == 0
    agreed, along = cosine.masked_fill(none, 0.0), (inner / squared).masked_fill(none, 0.0)
    of_natural, of_robust = torch.where(agreed > 0, agreed, -along), 1 - agreed.clamp_min(0)
    return of_natural * natural + of_robust * robust


def clipped(gradient: torch.Tensor, largest: float) -> torch.Tensor:
    return gradient * (largest / gradient.norm().clamp_min(1e-12)).clamp(max=1.0)
