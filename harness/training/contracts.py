"""The contracts between the training loop and the methods; see docs/decisions/0002-contracts.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from harness.core.lazy import torch


@dataclass(frozen=True)
class Batch:
    """Augmented images in [0,1], their labels, and their positions in the training set."""

    x: torch.Tensor
    y: torch.Tensor
    index: torch.Tensor


@dataclass(frozen=True)
class Clock:
    """Where a run stands; schedules are functions of `progress`, so a budget only scales them."""

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
        """The share of the run that lies before this step, in [0, 1)."""
        return self.steps_done / self.steps_in_all


@dataclass(frozen=True)
class Lab:
    """What a method is given to start from."""

    new_model: Callable[[], torch.nn.Module]  # the same initial weights on every call
    parents: tuple[torch.nn.Module, ...]
    num_classes: int
    generator: Callable[[str], torch.Generator]  # one independent stream per role
    device: torch.device
    validation: Batch  # held-out training images, never test images
    sample: Batch  # some training images as they are, for statistics
    amp: bool = False  # steps run under autocast; a method needs to know if it starts processes


@runtime_checkable
class Objective(Protocol):
    """A stateless loss; frozen dataclass, its fields are its hyper-parameters.

    The generator is its learner's own, so that learners draw the same numbers whether they run
    one after the other or side by side.
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
    """A training of several networks, by name; the report follows each of them."""

    def networks(self) -> dict[str, torch.nn.Module]: ...

    def shares(self, clock: Clock) -> dict[str, float]:
        """How much each network weighs in the deployed one, at `clock`'s step."""

    def redistributed(self, clock: Clock) -> dict[str, torch.nn.Module] | None:
        """The networks as they will be after the redistribution just before `clock`'s step, which
        this does not carry out; None where none is due."""


class Method(Protocol):
    """A frozen dataclass; its fields are its hyper-parameters."""

    @property
    def slug(self) -> str: ...

    def start(self, lab: Lab) -> Training: ...
