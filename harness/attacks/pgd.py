"""PGD, and FGSM, MIM and CW as settings of it: an attack is loss x start x step x projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from harness.attacks.attack import OneBall, Threat, attack_view, check_budget, input_gradient
from harness.attacks.balls import Ball, check_size, into, random_point, steepest
from harness.attacks.losses import ATTACK_LOSSES, NEED_CLEAN
from harness.attacks.work import Work
from harness.core.errors import expected, unknown
from harness.machine.device import torch
from harness.machine.distributed import per_image

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module

STARTS = ("uniform", "normal", "normal_unclipped", "zero")
_NORMAL_START_SIGMA = 0.001  # TRADES: at x' = x the gradient of KL is zero
_TINY = 1e-12


def fgsm(ball: Ball) -> PGD:
    """Goodfellow, Shlens, Szegedy 2015: one step of the whole radius."""
    return PGD(ball, ball.eps, steps=1, start="zero")


@dataclass(frozen=True)
class PGD(OneBall):
    """Projected gradient ascent (Madry et al. 2018); returns the last iterate.

    FGSM is one full step from the image itself; MIM has momentum on the gradient over its mean absolute
    value (Dong et al. 2018); CW has the margin as its loss.
    """

    ball: Ball
    step: Fraction
    steps: int
    start: str = "uniform"
    loss: str = "ce"
    momentum: float | None = None

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.start not in STARTS:
            raise unknown("start", self.start, STARTS, "PGD")
        if self.loss not in ATTACK_LOSSES:
            raise unknown("attack loss", self.loss, ATTACK_LOSSES, "PGD")
        if self.steps < 1 or (self.momentum or 0) < 0:
            found = f"steps = {self.steps}, momentum = {self.momentum}"
            raise expected("steps of 1 or more, momentum of 0 or more", found, "write steps: 10")
        check_size(self.ball.norm, "step", self.step)

    @classmethod
    def of(cls, threat: Threat, start: str = "uniform", loss: str = "ce") -> PGD:
        return cls(threat.ball, threat.step, threat.steps, start, loss)

    @property
    def slug(self) -> str:
        if self.steps == 1 and self.start == "zero":
            return f"fgsm_{self.ball.norm}"
        name = "mim" if self.momentum is not None else "cw" if self.loss == "margin" else "pgd"
        return f"{name}{self.steps}_{self.ball.norm}"

    def work(self, classes: int) -> Work:
        return Work(forward=self.loss in NEED_CLEAN, input_gradients=self.steps)

    def __call__(self, model: Module, x: Tensor, y: Tensor, *, generator: Generator) -> Tensor:
        *_, last = self.iterates(model, x, y, generator)
        return last

    def iterates(self, model: Module, x: Tensor, y: Tensor, generator: Generator) -> Iterator[Tensor]:
        """The image after each step; a PGD of fewer steps finds the same images."""
        norm, radius, step = self.ball.norm, self.ball.radius, float(self.step)
        loss = ATTACK_LOSSES[self.loss](model, x, y)
        adversarial = start_point(self.start, self.ball, x, generator)
        velocity = torch.zeros_like(x)
        for _ in range(self.steps):
            gradient = input_gradient(model, adversarial, loss)
            if self.momentum is not None:
                size = gradient.abs().flatten(1).mean(dim=1).view(-1, *[1] * (x.dim() - 1))
                velocity = self.momentum * velocity + gradient / size.clamp_min(_TINY)
                gradient = velocity
            adversarial = into(norm, x, adversarial + step * steepest(norm, gradient), radius)
            yield adversarial


def start_point(start: str, ball: Ball, x: Tensor, generator: Generator) -> Tensor:
    """The image that an attack starts from."""
    if start == "zero":
        return x.clone()
    if start in ("normal", "normal_unclipped"):
        noise = per_image(torch.randn, x.shape, generator=generator, device=x.device, dtype=x.dtype)
        moved = x + _NORMAL_START_SIGMA * noise
        return moved if start == "normal_unclipped" else into(ball.norm, x, moved, ball.radius)
    return random_point(ball.norm, x, ball.radius, generator)


def snapshots(
    family: Sequence[PGD], model: Module, x: Tensor, y: Tensor, *, generator: Generator
) -> Iterator[Tensor]:
    """What `perturb` finds for each PGD of a family, in one run of the longest.

    The family differs in steps only, in rising order.
    """
    longest, wanted = family[-1], {attack.steps for attack in family}
    with attack_view(model) as network:
        for steps, adversarial in enumerate(longest.iterates(network, x, y, generator), 1):
            if steps in wanted:
                check_budget(longest, x, adversarial)
                yield adversarial
