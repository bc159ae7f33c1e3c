"""Robust self-training (RST): Raghunathan, Xie, Yang, Duchi, Liang, ICML 2020 (arXiv 2002.10716).

With labelled data only, as the papers ran it: L = (1 - b) CE(f(x), y) + b CE(f(x'), y), b = 1/2, x'
by PGD from x plus a little Gaussian noise, not clipped to the box; the adversarial forward pass
comes first, which matters to BatchNorm's running statistics alone. Algebraically this is half-half
AT; what sets RST apart without unlabelled data is the start of the attack and, in the official
recipe, its schedule.

Certain: the loss and the order. Guess: that CVPR 2023 ran it with b = 1/2 in the unified recipe.
Compared: with the loss of p-lambda/robust_tradeoff, one step in float64: 0 for a given x'; the
start differed then and follows it now.
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
class RST:
    threat: Threat
    b: float = 0.5

    REVISION: ClassVar[int] = 2  # 2: start not clipped

    def __post_init__(self) -> None:
        within("b", self.b, 0, 1)

    @property
    def slug(self) -> str:
        return norm_slug("rst", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        attack = PGD.of(self.threat, start="normal_unclipped")
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator)
        robust = cross_entropy(model(adversarial), batch.y).mean()
        natural = cross_entropy(model(batch.x), batch.y).mean()
        return (1 - self.b) * natural + self.b * robust
