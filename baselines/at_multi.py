"""AT against several norms: Tramer & Boneh, NeurIPS 2019 (arXiv 1904.13000), section 4.

Each threat's PGD gives its own x'. AVG (the papers' "AT (l_inf + l_2)"): the mean of the losses. MAX:
per example the worse of them. SAT ("random" strategy of later work): one threat per batch, at random.

Certain: AVG and MAX. Guess: all of the official recipe (E-AT's is used); the x' of each norm are
forwarded separately, so BatchNorm sees them in turn.
Compared: not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.attacks.attack import Threat, perturb
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.core.errors import expected, unknown
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock

STRATEGIES = ("avg", "max", "sat")


@dataclass(frozen=True)
class MultiAT:
    threats: tuple[Threat, ...]
    strategy: str = "avg"

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES, "at_multi")
        if not self.threats:
            raise expected("at least one threat", "none", "write threats: [linf, l2]")

    @property
    def slug(self) -> str:
        return f"at_{self.strategy}"

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        threats = self.threats
        if self.strategy == "sat":
            drawn = torch.randint(len(threats), (1,), generator=generator, device=generator.device)
            threats = (threats[int(drawn)],)
        adversarial = [
            perturb(PGD.of(threat), model, batch.x, batch.y, generator=generator) for threat in threats
        ]
        losses = torch.stack([cross_entropy(model(x), batch.y) for x in adversarial])
        worst = losses.amax(dim=0) if self.strategy == "max" else losses.mean(dim=0)
        return worst.mean()
