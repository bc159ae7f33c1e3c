"""Fast adversarial training (Fast-AT): Wong, Rice, Kolter, ICLR 2020 (arXiv 2001.03994), Algorithm 3.

delta ~ U(-eps, eps); one FGSM step of 1.25 eps, clipped to eps; CE on x + delta, clipped to the
box. Crafted in train mode. The gradient is delta's and passes through the clip: where x + delta
leaves the box it is 0, and delta stays as drawn.

Certain: the attack, and the official schedule of the learning rate. The official ImageNet recipe
(15 epochs in three phases of growing crops) is in config/presets.yaml as far as one crop size goes.
Guess: the official weight decay.
Deviations: the crafting pass leaves no trace in BatchNorm's running statistics (the released code
lets it); the phases of crop size and batch size are not changed during a run.
Compared: with main_fast.py of locuslab/fast_adversarial, one step in float64: 6.7 % of x' on
saturated images, gradient 8 to 13 %; the gradient through the clip differed then and follows it
now.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from baselines.at import norm_slug
from harness.attacks.attack import Threat, input_gradient, perturb
from harness.attacks.balls import Ball, project, steepest
from harness.attacks.losses import attack_cross_entropy, cross_entropy
from harness.machine.device import torch
from harness.machine.distributed import per_image
from harness.training.contracts import Batch, Clock, within


@dataclass(frozen=True)
class ClippedFGSM:
    """One step from a random point, along the gradient through the clip to the box."""

    ball: Ball
    step: Fraction

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.ball,)

    @property
    def slug(self) -> str:
        return f"clipped_fgsm_{self.ball.norm}"

    def __call__(
        self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, *, generator: torch.Generator
    ) -> torch.Tensor:
        norm, radius = self.ball.norm, self.ball.radius
        noise = per_image(torch.rand, x.shape, generator=generator, device=x.device, dtype=x.dtype)
        delta = (2 * noise - 1) * radius

        def clipped(point: torch.Tensor) -> torch.Tensor:
            return model(point.clamp(0, 1))

        gradient = input_gradient(clipped, x + delta, attack_cross_entropy(model, x, y))
        delta = project(norm, delta + float(self.step) * steepest(norm, gradient), radius)
        return (x + delta).clamp(0, 1)


@dataclass(frozen=True)
class FastAT:
    threat: Threat
    stride: Fraction = Fraction(5, 4)  # the step, in units of eps

    REVISION: ClassVar[int] = 2  # 2: the gradient passes through the clip to the box

    def __post_init__(self) -> None:
        within("stride", self.stride, 0)

    @property
    def slug(self) -> str:
        return norm_slug("fast_at", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        ball = self.threat.ball
        attack = ClippedFGSM(ball, self.stride * ball.eps)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator, mode="train")
        return cross_entropy(model(adversarial), batch.y).mean()
