"""AT half-half (NT + l_inf): Goodfellow, Shlens, Szegedy, ICLR 2015 (arXiv 1412.6572), section 6.

Loss: w_n CE(f(x), y) + w_r CE(f(x'), y), the papers' beta = 1/2 being w = (1/2, 1/2). An average,
not a sum: a sum would double the learning rate. x and x' go through the network separately, so each
has its own BatchNorm statistics; a term of weight 0 is not computed and leaves no trace in them.

Certain: the average. Guess: PGD as the adversary (Goodfellow et al. used FGSM), separate forwards.
Compared: not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baselines.at import norm_slug
from harness.attacks.attack import Threat, perturb
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.core.errors import expected
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock


@dataclass(frozen=True)
class HalfHalf:
    threat: Threat
    weights: tuple[float, float] = (0.5, 0.5)  # natural, adversarial

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-9:
            raise expected("two weights >= 0 that sum to 1", self.weights, "write [0.5, 0.5]")

    @property
    def slug(self) -> str:
        return norm_slug("at_half", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        natural, adversarial = self.weights
        loss = torch.zeros((), device=batch.x.device)
        if adversarial:
            perturbed = perturb(PGD.of(self.threat), model, batch.x, batch.y, generator=generator)
        if natural:
            loss = loss + natural * cross_entropy(model(batch.x), batch.y).mean()
        if adversarial:
            loss = loss + adversarial * cross_entropy(model(perturbed), batch.y).mean()
        return loss
