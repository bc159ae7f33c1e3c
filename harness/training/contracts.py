"""The contracts between the training loop and the methods; see docs/decisions/0002-contracts.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from harness.core.errors import expected
from harness.core.paths import field_names
from harness.machine.device import Arithmetic, torch


def within(name: str, value: float | Fraction, least: float, most: float = math.inf) -> None:
    """Refuses a hyper-parameter outside its range."""
    if not least <= value <= most:
        span = f"of {least} or more" if most == math.inf else f"from {least} to {most}"
        raise expected(f"{name} {span}", f"{name} = {value}", "change it")


@dataclass(frozen=True)
class Batch:
    """Augmented images in [0,1], their labels, and their positions in the training set."""

    x: torch.Tensor
    y: torch.Tensor
    index: torch.Tensor


@dataclass(frozen=True)
class Clock:
    """The time of a step in its run; schedules depend on `progress`, so a budget only scales them."""

    epoch: int
    step: int
    epochs: int
    steps_per_epoch: int

    @property
    def steps_done(self) -> int:
        return self.epoch * self.steps_per_epoch + self.step

    @property
    def steps_in_all(self) -> int:
        return self.epochs * self.steps_per_epoch

    @property
    def progress(self) -> float:
        """The share of the run's steps before this one, in [0, 1)."""
        return self.steps_done / self.steps_in_all


@dataclass(frozen=True)
class Lab:
    """What a method gets to start from."""

    new_model: Callable[[], torch.nn.Module]  # the same initial weights on every call
    parents: tuple[torch.nn.Module, ...]
    num_classes: int
    generator: Callable[[str], torch.Generator]  # one independent stream per role
    device: torch.device
    validation: Batch  # held-out training images, never test images
    sample: Batch  # some training images without augmentation, for statistics
    arithmetic: Arithmetic = field(default_factory=Arithmetic)  # for methods that start processes


@runtime_checkable
class Objective(Protocol):
    """A stateless loss: a frozen dataclass whose fields are its hyper-parameters.

    Each learner has its own generator, so learners draw the same numbers in one process or in several.
    Random numbers that belong to an image are drawn by `machine.distributed.per_image`.
    """

    @property
    def slug(self) -> str: ...

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor: ...


class Training(Protocol):
    """The live state of one run."""

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]: ...

    def deployed(self) -> torch.nn.Module: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class Ensemble(Protocol):
    """A training of several networks, by name; reports show each of them."""

    def networks(self) -> dict[str, torch.nn.Module]: ...

    def shares(self, clock: Clock) -> dict[str, float]:
        """Each network's weight in the deployed one, at `clock`'s step."""

    def redistributed(self, clock: Clock) -> dict[str, torch.nn.Module] | None:
        """The networks after the redistribution before `clock`'s step, without carrying it out; None
        if there is none."""


class Method(Protocol):
    """A way to train: a frozen dataclass whose fields are its hyper-parameters.

    One that starts from trained parents says of how many: `PARENTS: ClassVar[tuple[int, ...]] = (2,)`.
    """

    @property
    def slug(self) -> str: ...

    def start(self, lab: Lab) -> Training: ...


def components(method: Any) -> Iterator[Any]:
    """A method and all dataclasses inside it: its learners, losses, threats, ..."""
    names = field_names(method.__class__)
    if isinstance(method, tuple):
        for own in method:
            yield from components(own)
    elif names is not None:
        yield method
        yield from components(tuple(getattr(method, name) for name in names))
