"""TRADES: Zhang, Yu, Jiao, Xing, El Ghaoui, Jordan, ICML 2019 (arXiv 1901.08573).

Loss (its eq. 5): CE(f(x), y) + beta * (1/B) sum KL(p(x) || p(x')), where x' maximises the same KL
by PGD in eval mode from x plus a little Gaussian noise (at x' = x the gradient of KL is zero). p(x)
is not detached. The papers' lambda is the released code's beta. The mean is over examples only:
dividing by examples times classes, as a 'mean' reduction does, would shrink the term K-fold. x, x'
and x again are forwarded separately, so BatchNorm's running statistics see x twice; the start is
not clipped to the box.

Certain: loss, attack, start, order of forward passes, the official drop of the rate (epoch 75
counted from 1, so 74/76; read in the released code).
Deviations: in l_2 the step is the threat's (Zipper A.5 prints 15/255), the released code's is
eps/5, and it clips to the box before the ball.
Compared: with trades.py of yaodongyu/TRADES, one step in float64: loss and gradient 2e-15 for a
given x'; start and running statistics differed then and follow it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from baselines.at import norm_slug
from harness.attacks.attack import Threat, perturb
from harness.attacks.losses import cross_entropy, kl
from harness.attacks.pgd import PGD
from harness.core.errors import expected
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock


@dataclass(frozen=True)
class TRADES:
    threat: Threat
    beta: float

    REVISION: ClassVar[int] = 2  # 2: start not clipped, BatchNorm sees x twice

    def __post_init__(self) -> None:
        if self.beta < 0:
            raise expected("beta >= 0", f"beta = {self.beta}", "write beta: 6")

    @property
    def slug(self) -> str:
        return norm_slug(f"trades{self.beta:g}", self.threat)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        attack = PGD.of(self.threat, start="normal_unclipped", loss="kl")
        if self.beta == 0:  # nothing to compute, and BatchNorm must see natural images only
            return cross_entropy(model(batch.x), batch.y).mean()
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator)
        clean = model(batch.x)
        robust = kl(clean, model(adversarial)).mean()
        with torch.no_grad():  # the released code computes p(x) again, so BatchNorm sees x twice
            model(batch.x)
        return cross_entropy(clean, batch.y).mean() + self.beta * robust
