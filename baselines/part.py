"""Pixel-reweighted adversarial training (PART): Zhang et al., ICML 2024 (arXiv 2406.00685).

After a warm-up of AT (20 of 80 epochs), each image's Grad-CAM map (last stage, predicted class, clean
image, eval mode) says which pixels matter: those keep the full radius eps, the others get eps_low
(7/255 for 8/255). PGD starts anywhere within eps, even outside the box, and projects element by element
on the two radii. Then CE on the result.

As in the released code, a pixel matters in a channel if the picture of the squared map in the colours
of `jet` lies there one standard deviation above the picture's mean; so red, green and blue have masks
of their own, about 29 % of all elements. Images without three channels take a pixel that matters in any
of the three (ours: the released code knows colour images only).

Certain: warm-up, the two radii, Grad-CAM on the last stage, the rule above, the official drop of the
rate at 79/80 (its counter starts again after the warm-up; read in the released code).
Guess: maps are taken from the current network and the augmented image.
Deviation: the released code keeps masks by batch position over a shuffled loader, so they meet other
images. `masks: aligned` (default) is the paper's intent; `as_released` gives each image its
neighbour's mask, the same mismatch without the storage.
Compared: with utils.py and craft_ae.py of JiachengZ01/PART, one step in float64: 3 to 4 % of x' for
given radii; masks and start differed then and follow it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar

from baselines.at import AT, norm_slug
from harness.attacks.attack import Threat, input_gradient, perturb
from harness.attacks.balls import Ball, into, steepest
from harness.attacks.losses import attack_cross_entropy, cross_entropy
from harness.core.errors import expected, unknown
from harness.machine.device import torch
from harness.machine.distributed import per_image
from harness.training.contracts import Batch, Clock, within

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
        self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, *, generator: torch.Generator
    ) -> torch.Tensor:
        step, attack_loss = float(self.threat.step), attack_cross_entropy(model, x, y)
        noise = per_image(torch.rand, x.shape, generator=generator, device=x.device, dtype=x.dtype)
        adversarial = x + (2 * noise - 1) * self.threat.ball.radius
        for _ in range(self.threat.steps):
            gradient = input_gradient(model, adversarial, attack_loss)
            moved = adversarial + step * steepest("linf", gradient)
            adversarial = into("linf", x, moved, self.radius)
        return adversarial


@dataclass(frozen=True)
class PART:
    threat: Threat
    low: Fraction = Fraction(7, 8)  # eps_low as a share of eps
    warmup: Fraction = Fraction(20, 80)
    masks: str = "aligned"

    REVISION: ClassVar[int] = 2  # 2: the released code's masks and start

    def __post_init__(self) -> None:
        if self.masks not in MASKS:
            raise unknown("kind of masks", self.masks, MASKS, "part")
        within("warmup", self.warmup, 0, 1)
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
        """eps where Grad-CAM says that a pixel matters, low * eps elsewhere; for each element."""
        from harness.models.networks import gradcam  # here: it imports torch

        heat = torch.nn.functional.interpolate(
            gradcam(model, x),
            size=x.shape[2:],
            mode="bicubic",
            antialias=True,  # Pillow's cubic; an enlarged map is not smoothed by it
        )
        picture = jet(heat.squeeze(1).square())
        spread, mean = torch.std_mean(picture, dim=(1, 2, 3), correction=0, keepdim=True)
        matters = picture > mean + spread
        if x.shape[1] != 3:
            matters = matters.any(dim=1, keepdim=True)
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


@cache
def _jet() -> torch.Tensor:
    from matplotlib import colormaps

    return torch.from_numpy(colormaps["jet"](range(256))[:, :3]).float()


def jet(values: torch.Tensor) -> torch.Tensor:
    """(n, h, w) in [0, 1] to a picture (n, 3, h, w) in the colours of matplotlib's `jet`."""
    place = (values * 256).long().clamp(0, 255)
    return _jet().to(values.device)[place].permute(0, 3, 1, 2)
