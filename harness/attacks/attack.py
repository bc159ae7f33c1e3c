"""The contract of an attack, and `perturb`, which runs every attack.

An attack is a frozen dataclass that can be called. `perturb` guarantees: same shape, in the ball and
the box, finite; model mode, BatchNorm buffers and parameter gradients are restored. Gradients are
taken with respect to the image only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from harness.attacks.balls import Ball, check_size
from harness.attacks.losses import AttackLoss
from harness.attacks.work import Work
from harness.core.errors import expected
from harness.machine.device import torch

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module

_TOLERANCE = 1e-5
ORDERS = {"linf": float("inf"), "l2": 2.0, "l1": 1.0}


@dataclass(frozen=True)
class Threat:
    """The adversary of a training: ball, step size, number of steps.

    Radius and step grow from 0 to these sizes over a share of the run, if it has a `warmup`.
    """

    ball: Ball
    step: Fraction
    steps: int
    warmup: Fraction | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise expected("at least one attack step", f"steps = {self.steps}", "write steps: 10")
        check_size(self.ball.norm, "step", self.step)
        if self.warmup is not None and not 0 < self.warmup <= 1:
            found = f"warmup = {self.warmup}"
            raise expected("a warm-up as a share of the epochs, above 0", found, "write warmup: 20/120")

    def at(self, progress: Fraction) -> Threat:
        """The adversary at the end of this share of the run."""
        if self.warmup is None or progress >= self.warmup:
            return self
        share = progress / self.warmup
        return Threat(Ball(self.norm, share * self.ball.eps), share * self.step, self.steps)

    @classmethod
    def of(
        cls, norm: str, eps: Fraction, step: Fraction, steps: int, warmup: Fraction | None = None
    ) -> Threat:
        """One by the names of an entry of config/grid.yaml."""
        return cls(Ball(norm, eps), step, steps, warmup)

    @property
    def norm(self) -> str:
        return self.ball.norm


class Attack(Protocol):
    """Finds a perturbed image for each image of a batch."""

    @property
    def balls(self) -> tuple[Ball, ...]:
        """Each perturbation lies in at least one of these."""
        ...

    @property
    def slug(self) -> str: ...

    def __call__(self, model: Module, x: Tensor, y: Tensor, *, generator: Generator) -> Tensor: ...


class Staged(Protocol):
    """What an evaluation runs: attacks in turn, each on the images that survived the ones before."""

    @property
    def slug(self) -> str: ...

    @property
    def stages(self) -> tuple[Attack, ...]: ...

    def work(self, classes: int) -> Work:
        """The most passes that an image takes, of a data set with so many classes."""
        ...


class OneBall:
    """What attacks in a single ball share: they have one stage."""

    ball: Ball

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.ball,)

    @property
    def stages(self) -> tuple[Any, ...]:
        return (self,)


def input_gradient(model: Callable[[Tensor], Tensor], x: Tensor, loss: AttackLoss) -> Tensor:
    """The gradient of the summed loss with respect to the image: examples stay independent."""
    x = x.detach().requires_grad_(True)
    with torch.enable_grad():
        total = loss(model(x)).sum()
    return torch.autograd.grad(total, x)[0]


@contextmanager
def attack_view(model: Module, mode: str = "eval") -> Iterator[Module]:
    """The network that an attack sees: frozen; in eval mode its folded copy, if it has one."""
    from harness.models.folding import folded, frozen

    copy = folded(model) if mode == "eval" else None
    if copy is not None:
        yield copy
    else:
        with frozen(model, mode):
            yield model


def perturb(
    attack: Attack, model: Module, x: Tensor, y: Tensor, *, generator: Generator, mode: str = "eval"
) -> Tensor:
    """Run an attack and check its result."""
    with attack_view(model, mode) as network:
        adversarial = attack(network, x, y, generator=generator).detach()
    check_budget(attack, x, adversarial)
    return adversarial


def check_budget(attack: Attack, x: Tensor, adversarial: Tensor) -> None:
    """Fail if a perturbed image has another shape or lies outside ball or box."""
    if adversarial.shape != x.shape:
        raise AssertionError(f"{attack.slug} changed the shape {x.shape} to {adversarial.shape}")
    if not len(x):
        return
    difference = (adversarial - x).flatten(1)
    within = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for ball in attack.balls:
        size = torch.linalg.vector_norm(difference, ORDERS[ball.norm], dim=1)
        within |= size <= ball.radius * (1 + _TOLERANCE) + _TOLERANCE
    # One test, so that a GPU synchronises once; NaN fails it too.
    if not bool(within.all() & (adversarial.min() >= 0) & (adversarial.max() <= 1)):
        balls = " or ".join(f"{ball.norm} {ball.eps}" for ball in attack.balls)
        raise AssertionError(
            f"{attack.slug} left its budget ({balls}) in {int((~within).sum())} of {len(x)} images"
        )


@dataclass
class Passes:
    """Counted network passes, in batches and in examples."""

    forward: int = 0
    backward: int = 0
    forward_examples: int = 0
    backward_examples: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@contextmanager
def counting(model: Module) -> Iterator[Passes]:
    """Count forward passes, and backward passes by the gradients that reach the logits."""
    passes = Passes()

    def on_forward(module: Module, inputs: Any, logits: Tensor) -> None:
        examples = len(logits)
        passes.forward += 1
        passes.forward_examples += examples
        if logits.requires_grad:

            def on_backward(gradient: Tensor) -> None:
                passes.backward += 1
                passes.backward_examples += examples

            logits.register_hook(on_backward)

    hook = model.register_forward_hook(on_forward)
    try:
        yield passes
    finally:
        hook.remove()
