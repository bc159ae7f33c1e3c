"""Fast adversarial training (Fast-AT): Wong, Rice, Kolter, ICLR 2020 (arXiv 2001.03994), Algorithm 3.

delta ~ U(-eps, eps); one FGSM step of 1.25 eps, clipped to eps; CE on x + delta. Crafted in train mode.

Certain: the attack. The official ImageNet recipe (15 epochs in three phases of growing crops) is in
config/presets.yaml as far as one crop size goes.
Guess: the official peak learning rate (0.4), weight decay and knots.
Deviations: the crafting pass leaves no trace in BatchNorm's running statistics (the released code
lets it); the phases of crop size and batch size are not changed during a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from baselines.at import norm_slug
from harness.attacks import PGD, Threat, perturb
from harness.contracts import Batch, Clock
from harness.lazy import torch
from harness.losses import cross_entropy


@dataclass(frozen=True)
class FastAT:
    threat: Threat
    stride: Fraction = Fraction(5, 4)  # the step, in units of eps

    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return norm_slug("fast_at", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        ball = self.threat.ball
        attack = PGD(ball, self.stride * ball.eps, steps=1)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator, mode="train")
        return cross_entropy(model(adversarial), batch.y).mean()
