"""Adversarial training (AT): Madry, Makelov, Schmidt, Tsipras, Vladu, ICLR 2018 (arXiv 1706.06083).

Eq. 2.1: min_theta E max_{x' in ball(x)} CE(f(x'), y), the inner maximum by PGD from a uniform start,
crafted with BatchNorm in eval mode; the update's forward pass is in train mode and sees x' only.
In l_2 the same with the l_2 ball.

Certain: the loss, 10 steps, uniform start. Guess: the official recipe (that of common CIFAR code).
Compared: with main.py and attacks.py of PKU-ML/Generalist, as its learner, five epochs in float64:
1e-16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.attacks.attack import Threat, perturb
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock


@dataclass(frozen=True)
class AT:
    threat: Threat

    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return norm_slug("at", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        adversarial = perturb(PGD.of(self.threat), model, batch.x, batch.y, generator=generator)
        return cross_entropy(model(adversarial), batch.y).mean()


def norm_slug(name: str, threat: Threat) -> str:
    """The slug with its norm; l_inf is the papers' default and is left out."""
    return name if threat.norm == "linf" else f"{name}_{threat.norm}"
