"""Friendly adversarial training (FAT): Zhang et al., ICML 2020 (arXiv 2002.11242), Algorithm 1 and 2.

Per-example early-stopped PGD: before each step, a misclassified example whose patience tau is used up
leaves the attack as it stands; one with patience left loses one and goes on. Those that go on step by
a sign(gradient) + omega N(0, 1). Then CE on the result. tau is 0 until 50/120 of the run, 1 until
90/120, then 2.

Certain: the stopping rule, omega = 0.001, tau's schedule, the official drops (59, 89 and 109 of 120,
counted from 0; read in the released code).
Guess: the uniform random start in the papers' unified recipe; the sizes of the official drops.
Deviation: the released code reorders the batch while examples leave; ours keeps every image in place.
On a GPU those that left stay in the batch, which costs their passes.
Compared: with earlystop.py of zjfheart/Friendly-Adversarial-Training, tau 0, 1 and 2, one step in
float64: 5e-15.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from baselines.at import norm_slug
from harness.attacks.attack import Threat, perturb
from harness.attacks.balls import Ball, into, steepest
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import start_point
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, within


@dataclass(frozen=True)
class FriendlyPGD:
    threat: Threat
    tau: int
    omega: float

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.threat.ball,)

    @property
    def slug(self) -> str:
        return f"friendly{self.threat.steps}_{self.threat.norm}"

    def __call__(
        self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, *, generator: torch.Generator
    ) -> torch.Tensor:
        ball, step = self.threat.ball, float(self.threat.step)
        adversarial = start_point("uniform", ball, x, generator)
        wide = (-1, *[1] * (x.dim() - 1))
        # A GPU would wait to learn how many are left, and cuDNN and torch.compile want one shape.
        drops = x.device.type == "cpu"
        rows, patience = torch.arange(len(y), device=y.device), torch.full_like(y, self.tau)
        for _ in range(self.threat.steps):
            point = adversarial[rows].detach().requires_grad_(True)
            with torch.enable_grad():
                logits = model(point)
                loss = cross_entropy(logits, y[rows]).sum()
            (gradient,) = torch.autograd.grad(loss, point)
            wrong, point = logits.argmax(dim=1) != y[rows], point.detach()
            going = ~(wrong & (patience == 0))
            patience = patience - (wrong & going).long()
            if drops:
                known = (rows, point, gradient, patience, going)
                rows, point, gradient, patience, going = (own[going] for own in known)
                if not len(rows):
                    break
            noise = torch.randn(point.shape, generator=generator, device=x.device, dtype=x.dtype)
            moved = point + step * steepest(ball.norm, gradient) + self.omega * noise
            moved = into(ball.norm, x[rows], moved, ball.radius)
            adversarial[rows] = torch.where(going.view(wide), moved, point)
        return adversarial


@dataclass(frozen=True)
class FAT:
    threat: Threat
    omega: float = 0.001
    patience_from: tuple[Fraction, ...] = (Fraction(50, 120), Fraction(90, 120))

    REVISION: ClassVar[int] = 1
    NEEDS_WHOLE_BATCH: ClassVar[str] = "draws noise for the images that are still attacked"

    def __post_init__(self) -> None:
        within("omega", self.omega, 0)
        for share in self.patience_from:
            within("patience_from", share, 0, 1)

    @property
    def slug(self) -> str:
        return norm_slug("fat", self.threat)

    def tau_at(self, clock: Clock) -> int:
        return sum(clock.progress > float(share) for share in self.patience_from)

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        attack = FriendlyPGD(self.threat, self.tau_at(clock), self.omega)
        friendly = perturb(attack, model, batch.x, batch.y, generator=generator)
        return cross_entropy(model(friendly), batch.y).mean()
