"""Attacks as frozen dataclasses, and the one wrapper through which every attack is run.

An attack is loss x start x step x projection. `perturb` guarantees what no attack may forget: same
shape, in the ball and the box, finite; model mode, BatchNorm buffers and parameter gradients as
they were. Gradients are taken with respect to the image only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar, Protocol

from harness.balls import Ball, into, random_point, steepest
from harness.errors import expected, unknown
from harness.lazy import torch
from harness.losses import CLIMBS, Climb

STARTS = ("uniform", "normal", "normal_unclipped", "zero")
_NORMAL_START_SIGMA = 0.001  # TRADES: at x' = x the gradient of KL is zero
_TOLERANCE = 1e-5
_TINY = 1e-12
ORDERS = {"linf": float("inf"), "l2": 2.0, "l1": 1.0}


@dataclass(frozen=True)
class Threat:
    """What a training adversary may do: its ball, its step size, its number of steps."""

    ball: Ball
    step: Fraction
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise expected("at least one attack step", f"steps = {self.steps}", "write steps: 10")
        Ball(self.ball.norm, self.step)  # a step is a radius too: the same slip of scale

    @property
    def norm(self) -> str:
        return self.ball.norm


class Attack(Protocol):
    @property
    def balls(self) -> tuple[Ball, ...]:
        """Each perturbation lies in at least one of these."""
        ...

    @property
    def slug(self) -> str: ...

    def __call__(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        generator: torch.Generator,
    ) -> torch.Tensor: ...


class Staged(Protocol):
    """What an evaluation runs: attacks in turn, each on those who survived the ones before."""

    @property
    def slug(self) -> str: ...

    @property
    def stages(self) -> tuple[Attack, ...]: ...


def fgsm(ball: Ball) -> PGD:
    """Goodfellow, Shlens, Szegedy 2015: one step of the whole radius."""
    return PGD(ball, ball.eps, steps=1, start="zero")


@dataclass(frozen=True)
class PGD:
    """Projected gradient ascent (Madry et al. 2018); the last iterate is the answer.

    FGSM, MIM and CW are compositions of the same parts: one full step from the image itself; momentum
    on the gradient over its mean absolute value (Dong et al. 2018); the margin as the loss.
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
        if self.loss not in CLIMBS:
            raise unknown("attack loss", self.loss, CLIMBS, "PGD")

    @classmethod
    def of(cls, threat: Threat, start: str = "uniform", loss: str = "ce") -> PGD:
        return cls(threat.ball, threat.step, threat.steps, start, loss)

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.ball,)

    @property
    def slug(self) -> str:
        if self.steps == 1 and self.start == "zero":
            return f"fgsm_{self.ball.norm}"
        name = "mim" if self.momentum is not None else "cw" if self.loss == "margin" else "pgd"
        return f"{name}{self.steps}_{self.ball.norm}"

    @property
    def stages(self) -> tuple[Attack, ...]:
        return (self,)

    def __call__(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        generator: torch.Generator,
    ) -> torch.Tensor:
        *_, last = self.iterates(model, x, y, generator)
        return last

    def iterates(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        generator: torch.Generator,
    ) -> Iterator[torch.Tensor]:
        """The image after each step: PGD of fewer steps is this one on its way."""
        norm, radius, step = self.ball.norm, self.ball.radius, float(self.step)
        climb = CLIMBS[self.loss](model, x, y)
        adversarial = start_point(self.start, self.ball, x, generator)
        velocity = torch.zeros_like(x)
        for _ in range(self.steps):
            gradient = input_gradient(model, adversarial, climb)
            if self.momentum is not None:
                size = gradient.abs().flatten(1).mean(dim=1).view(-1, *[1] * (x.dim() - 1))
                velocity = self.momentum * velocity + gradient / size.clamp_min(_TINY)
                gradient = velocity
            adversarial = into(norm, x, adversarial + step * steepest(norm, gradient), radius)
            yield adversarial


def start_point(
    start: str, ball: Ball, x: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    if start == "zero":
        return x.clone()
    if start in ("normal", "normal_unclipped"):
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        moved = x + _NORMAL_START_SIGMA * noise
        return moved if start == "normal_unclipped" else into(ball.norm, x, moved, ball.radius)
    return random_point(ball.norm, x, ball.radius, generator)


def input_gradient(
    model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, climb: Climb
) -> torch.Tensor:
    """The gradient of the summed loss with respect to the image: examples stay independent."""
    x = x.detach().requires_grad_(True)
    with torch.enable_grad():
        loss = climb(model(x)).sum()
    return torch.autograd.grad(loss, x)[0]


@contextmanager
def frozen(model: torch.nn.Module, mode: str = "eval") -> Iterator[None]:
    """The model as an attack may see it; mode, buffers and requires_grad are given back."""
    training = [(module, module.training) for module in model.modules()]
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    buffers = [b.clone() for b in model.buffers()] if mode == "train" else []
    model.train(mode == "train")
    for parameter, _ in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, flag in wanted:
            parameter.requires_grad_(flag)
        with torch.no_grad():
            for buffer, kept in zip(model.buffers(), buffers, strict=False):
                buffer.copy_(kept)


@contextmanager
def climbed(model: torch.nn.Module, mode: str = "eval") -> Iterator[torch.nn.Module]:
    """What an attack works on: in eval mode the folded twin, where there is one."""
    from harness.folding import folded  # it needs torch itself, planning does not

    twin = folded(model) if mode == "eval" else None
    if twin is not None:
        yield twin
    else:
        with frozen(model, mode):
            yield model


def perturb(
    attack: Attack,
    model: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    generator: torch.Generator,
    mode: str = "eval",
) -> torch.Tensor:
    """Run an attack and hold it to its postconditions."""
    with climbed(model, mode) as network:
        adversarial = attack(network, x, y, generator=generator).detach()
    _check_budget(attack, x, adversarial)
    return adversarial


def snapshots(
    family: Sequence[PGD],
    model: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    generator: torch.Generator,
) -> Iterator[torch.Tensor]:
    """What `perturb` finds for each of a family, equal but for rising steps, by one run of the last."""
    longest, wanted = family[-1], {attack.steps for attack in family}
    with climbed(model) as network:
        for steps, adversarial in enumerate(longest.iterates(network, x, y, generator), 1):
            if steps in wanted:
                _check_budget(longest, x, adversarial)
                yield adversarial


def _check_budget(attack: Attack, x: torch.Tensor, adversarial: torch.Tensor) -> None:
    if adversarial.shape != x.shape:
        raise AssertionError(f"{attack.slug} changed the shape {x.shape} to {adversarial.shape}")
    if not len(x):
        return
    difference = (adversarial - x).flatten(1)
    within = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for ball in attack.balls:
        size = torch.linalg.vector_norm(difference, ORDERS[ball.norm], dim=1)
        within |= size <= ball.radius * (1 + _TOLERANCE) + _TOLERANCE
    # One answer, so that a GPU is asked to synchronise once; NaN fails it too.
    if not bool(within.all() & (adversarial.min() >= 0) & (adversarial.max() <= 1)):
        balls = " or ".join(f"{ball.norm} {ball.eps}" for ball in attack.balls)
        raise AssertionError(
            f"{attack.slug} left its budget ({balls}) in {int((~within).sum())} of {len(x)} images"
        )


@dataclass
class Passes:
    """Network passes really made, in batches and in examples."""

    forward: int = 0
    backward: int = 0
    forward_examples: int = 0
    backward_examples: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@contextmanager
def counting(model: torch.nn.Module) -> Iterator[Passes]:
    """Count forward passes, and backward passes by the gradients that reach the logits."""
    passes = Passes()

    def on_forward(module, inputs, logits) -> None:
        examples = len(logits)
        passes.forward += 1
        passes.forward_examples += examples
        if logits.requires_grad:

            def on_backward(gradient) -> None:
                passes.backward += 1
                passes.backward_examples += examples

            logits.register_hook(on_backward)

    hook = model.register_forward_hook(on_forward)
    try:
        yield passes
    finally:
        hook.remove()
