"""What an attack is, and the one wrapper through which every attack is run.

An attack is a frozen dataclass that can be called. `perturb` guarantees what no attack may forget: same
shape, in the ball and the box, finite; model mode, BatchNorm buffers and parameter gradients as
they were. Gradients are taken with respect to the image only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Protocol

from harness.attacks.balls import Ball
from harness.attacks.losses import Climb
from harness.core.errors import expected
from harness.core.lazy import torch

_TOLERANCE = 1e-5
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


def input_gradient(
    model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, climb: Climb
) -> torch.Tensor:
    """The gradient of the summed loss with respect to the image: examples stay independent."""
    x = x.detach().requires_grad_(True)
    with torch.enable_grad():
        loss = climb(model(x)).sum()
    return torch.autograd.grad(loss, x)[0]


@contextmanager
def climbed(model: torch.nn.Module, mode: str = "eval") -> Iterator[torch.nn.Module]:
    """What an attack works on: in eval mode the folded twin, where there is one."""
    from harness.models.folding import folded, frozen

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
    check_budget(attack, x, adversarial)
    return adversarial


def check_budget(attack: Attack, x: torch.Tensor, adversarial: torch.Tensor) -> None:
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
