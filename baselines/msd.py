"""Multi steepest descent (MSD): Maini, Wong, Kolter, ICML 2020 (arXiv 1909.04068), Algorithm 1.

One perturbation for several norms: each step takes one gradient, makes one candidate per norm (its
steepest step, its projection, the box) and keeps, per example, the candidate of larger loss. The best
iterate is remembered. Starts at the image. Then CE on it.

Certain: the algorithm, zero start, best iterate; of the official recipe 50 steps, the radii (l_inf
0.03, l_2 0.3, l_1 12), crafting in train mode, and an l_1 step of length 1 spread evenly over k
coordinates, where each step draws one k from 5 to 20 for the whole batch (read in the released code).
Unified: the threats' own steps and step sizes, crafted in eval mode; an l_1 step, if l_1 is asked for,
moves the largest 1 % of the coordinates (at least one).
Guess: the official l_inf step, 0.003 (versions of the released code have 0.003 and 0.005).
Deviations: the coordinates of an l_1 step have the largest gradients; the released code passes over
those that the box stops, and clips to the box after projecting on the l_1 ball, where ours projects on
both together. Crafting in train mode leaves no trace in BatchNorm's running statistics (the released
code lets it). The official network is PreActResNet-18.
Compared: with msd_v0 of locuslab/robust_union in l_inf + l_2, both modes, one step in float64:
1e-15; running statistics differ in train mode (see the deviations).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.attacks.attack import Threat, input_gradient, perturb
from harness.attacks.balls import Ball, into, steepest
from harness.attacks.losses import attack_cross_entropy, cross_entropy
from harness.core.errors import expected, unknown
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock

MODES = ("eval", "train")
_L1_SHARE = 0.01


@dataclass(frozen=True)
class MultiSteepest:
    threats: tuple[Threat, ...]
    l1_coordinates: tuple[int, int] | None = None  # fewest and most of an l_1 step; None: 1 %

    def __post_init__(self) -> None:
        if not self.threats:
            raise expected("at least one threat", "none", "write threats: [linf, l2]")
        if self.l1_coordinates is not None:
            fewest, most = self.l1_coordinates
            if not 1 <= fewest <= most:
                raise expected(
                    "l1_coordinates from 1 upwards, the fewest first",
                    f"{fewest} and {most}",
                    "write l1_coordinates: [5, 20]",
                )

    @property
    def balls(self) -> tuple[Ball, ...]:
        return tuple(threat.ball for threat in self.threats)

    @property
    def slug(self) -> str:
        return f"msd{self.threats[0].steps}"

    def __call__(
        self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, *, generator: torch.Generator
    ) -> torch.Tensor:
        attack_loss = attack_cross_entropy(model, x, y)
        wide = (-1, *[1] * (x.dim() - 1))
        now, best, best_loss = x, x, torch.full((len(x),), -torch.inf, device=x.device)
        for share in self._l1_shares(x, generator):
            gradient = input_gradient(model, now, attack_loss)
            chosen, loss = now, torch.full_like(best_loss, -torch.inf)
            for threat in self.threats:
                ball = threat.ball
                step = float(threat.step) * steepest(ball.norm, gradient, share)
                candidate = into(ball.norm, x, now + step, ball.radius)
                with torch.no_grad():
                    height = attack_loss(model(candidate))
                higher = height > loss
                chosen = torch.where(higher.view(wide), candidate, chosen)
                loss = torch.where(higher, height, loss)
            now, better = chosen, loss > best_loss
            best = torch.where(better.view(wide), now, best)
            best_loss = torch.where(better, loss, best_loss)
        return best

    def _l1_shares(self, x: torch.Tensor, generator: torch.Generator) -> list[float]:
        """For each step, the share of an image's coordinates that its l_1 step moves."""
        steps = self.threats[0].steps
        if self.l1_coordinates is None:
            return [_L1_SHARE] * steps
        fewest, most = self.l1_coordinates
        drawn = torch.randint(fewest, most + 1, (steps,), generator=generator, device=generator.device)
        return [min(count / x[0].numel(), 1.0) for count in drawn.tolist()]


@dataclass(frozen=True)
class MSD:
    threats: tuple[Threat, ...]
    mode: str = "eval"  # BatchNorm while crafting
    l1_coordinates: tuple[int, int] | None = None  # as in MultiSteepest

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        MultiSteepest(self.threats, self.l1_coordinates)  # checks the fields
        if self.mode not in MODES:
            raise unknown("mode", self.mode, MODES, "msd")

    @property
    def slug(self) -> str:
        return "msd"

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        attack = MultiSteepest(self.threats, self.l1_coordinates)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator, mode=self.mode)
        return cross_entropy(model(adversarial), batch.y).mean()
