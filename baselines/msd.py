"""Multi steepest descent (MSD): Maini, Wong, Kolter, ICML 2020 (arXiv 1909.04068), Algorithm 1.

One perturbation for several norms: each step takes one gradient, makes one candidate per norm (its
steepest step, its projection, the box) and keeps, per example, the candidate of larger loss. The best
iterate is remembered. Starts at the image. Then CE on it.

Certain: the algorithm, zero start, best iterate. Unified: the threats' own steps and step sizes,
crafted in eval mode. Official: 50 steps, three norms, crafted in train mode.
Guess: the official l_1 step (0.6) and radii as exact decimals.
Deviation: in l_1 a step moves the largest 1 % of the coordinates (at least one); the released code
draws their number at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.attacks import Threat, input_gradient, perturb
from harness.balls import Ball, into, steepest
from harness.contracts import Batch, Clock
from harness.errors import expected
from harness.lazy import torch
from harness.losses import climb_cross_entropy, cross_entropy

_L1_SHARE = 0.01


@dataclass(frozen=True)
class MultiSteepest:
    threats: tuple[Threat, ...]

    @property
    def balls(self) -> tuple[Ball, ...]:
        return tuple(threat.ball for threat in self.threats)

    @property
    def slug(self) -> str:
        return f"msd{self.threats[0].steps}"

    def __call__(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        generator: torch.Generator,
    ) -> torch.Tensor:
        climb = climb_cross_entropy(model, x, y)
        wide = (-1, *[1] * (x.dim() - 1))
        now, best, best_loss = x, x, torch.full((len(x),), -torch.inf, device=x.device)
        for _ in range(self.threats[0].steps):
            gradient = input_gradient(model, now, climb)
            chosen, loss = now, torch.full_like(best_loss, -torch.inf)
            for threat in self.threats:
                ball = threat.ball
                step = float(threat.step) * steepest(ball.norm, gradient, _L1_SHARE)
                candidate = into(ball.norm, x, now + step, ball.radius)
                with torch.no_grad():
                    height = climb(model(candidate))
                higher = height > loss
                chosen = torch.where(higher.view(wide), candidate, chosen)
                loss = torch.where(higher, height, loss)
            now, better = chosen, loss > best_loss
            best = torch.where(better.view(wide), now, best)
            best_loss = torch.where(better, loss, best_loss)
        return best


@dataclass(frozen=True)
class MSD:
    threats: tuple[Threat, ...]
    mode: str = "eval"  # BatchNorm while crafting

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.threats:
            raise expected("at least one threat", "none", "write threats: [linf, l2]")

    @property
    def slug(self) -> str:
        return "msd"

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        attack = MultiSteepest(self.threats)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator, mode=self.mode)
        return cross_entropy(model(adversarial), batch.y).mean()
