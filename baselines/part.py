"""Pixel-reweighted adversarial training (PART): Zhang et al., ICML 2024 (arXiv 2406.00685).

After a warm-up of AT (20 of 80 epochs), each image's Grad-CAM map (last stage, predicted class, clean
image, eval mode) says which pixels matter: those keep the full radius eps, the others get eps_low
(7/255 for 8/255). PGD projects element by element on that radius. Then CE on the result.

Certain: warm-up, the two radii, Grad-CAM on the last stage. Guess: a pixel matters if its map is above
the image's mean; maps are taken from the current network and the augmented image; where the
official rate drops.
Deviations: the released code keeps masks by batch position over a shuffled loader, so they meet other
images. `masks: aligned` (default) is the paper's intent; `as_released` gives each image its
neighbour's mask, the same mismatch without the storage. The released code also thresholds a
jet-coloured picture of the map; we threshold the map itself in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from baselines.at import AT, norm_slug
from harness.attacks import Threat, input_gradient, perturb
from harness.balls import Ball, into, random_point, steepest
from harness.contracts import Batch, Clock
from harness.errors import expected, unknown
from harness.gradcam import gradcam
from harness.lazy import torch
from harness.losses import climb_cross_entropy, cross_entropy

MASKS = ("aligned", "as_released")


@dataclass(frozen=True)
class PixelPGD:
    """PGD with a radius per pixel, none above the threat's."""

    threat: Threat
    radius: torch.Tensor

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.threat.ball,)

    @property
    def slug(self) -> str:
        return f"pixelpgd{self.threat.steps}_{self.threat.norm}"

    def __call__(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        generator: torch.Generator,
    ) -> torch.Tensor:
        step, climb = float(self.threat.step), climb_cross_entropy(model, x, y)
        adversarial = random_point("linf", x, self.radius, generator)
        for _ in range(self.threat.steps):
            gradient = input_gradient(model, adversarial, climb)
            moved = adversarial + step * steepest("linf", gradient)
            adversarial = into("linf", x, moved, self.radius)
        return adversarial


@dataclass(frozen=True)
class PART:
    threat: Threat
    low: Fraction = Fraction(7, 8)  # eps_low as a share of eps
    warmup: Fraction = Fraction(20, 80)
    masks: str = "aligned"

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.masks not in MASKS:
            raise unknown("kind of masks", self.masks, MASKS, "part")
        if self.threat.norm != "linf" or not 0 <= self.low <= 1:
            raise expected(
                "an l_inf threat and low in [0, 1]",
                f"{self.threat.norm} and {self.low}",
                "write threat: linf, low: 7/8",
            )

    @property
    def slug(self) -> str:
        return norm_slug("part", self.threat)

    def radii(self, model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        """(n, 1, height, width): eps where the network looks, low * eps elsewhere."""
        heat = gradcam(model, x)
        matters = heat > heat.mean(dim=(2, 3), keepdim=True)
        if self.masks == "as_released":
            matters = matters.roll(1, dims=0)
        eps = self.threat.ball.radius
        return torch.where(matters, eps, eps * float(self.low))

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        if clock.progress < float(self.warmup):
            return AT(self.threat)(model, batch, clock, generator)
        attack = PixelPGD(self.threat, self.radii(model, batch.x))
        adversarial = perturb(attack, model, batch.x, batch.y, generator=generator)
        return cross_entropy(model(adversarial), batch.y).mean()
