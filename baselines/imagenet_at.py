"""AT at ImageNet scale: Salman, Ilyas, Engstrom, Kapoor, Madry, NeurIPS 2020 (arXiv 2007.08489).

AT with a cheap adversary: 3 PGD steps of 2 eps / 3, crafted in eval mode. Official recipe: 90 epochs,
learning rate 0.1 divided by 10 every 30, weight decay 1e-4, batch 512.

Certain: steps and step size. Guess: that Generalist++'s "AT" row is this recipe; its numbers equal
RobustBench's entries to the digit.
Compared: not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from baselines.at import AT, norm_slug
from harness.attacks.attack import Threat
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, within


@dataclass(frozen=True)
class ImageNetAT:
    threat: Threat
    steps: int = 3

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        within("steps", self.steps, 1)

    @property
    def slug(self) -> str:
        return norm_slug("imagenet_at", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        ball = self.threat.ball
        cheap = Threat(ball, ball.eps * Fraction(2, self.steps), self.steps)
        return AT(cheap)(model, batch, clock, generator)
