"""A learner: a network with its own loss, optimizer, schedule and, optionally, weight average.

`Single` describes one. It is the method of most baselines, and each base learner of Generalist.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

from harness.attacks.attack import Threat
from harness.core.errors import expected, unknown
from harness.core.paths import field_names
from harness.machine import distributed
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab, Objective, components, within
from harness.training.weights import mix_into

SHAPES = ("linear", "step", "cosine")
ALGORITHMS = ("sgd", "adam")


@dataclass(frozen=True)
class Schedule:
    """A factor on the learning rate, as a function of the run's progress.

    The default is the papers' text: 1 until epoch 40 of 120, down to 1/10 at 60 and 1/100 at 120.
    """

    shape: str = "linear"
    knots: tuple[tuple[Fraction, float], ...] = (
        (Fraction(0), 1.0),
        (Fraction(40, 120), 1.0),
        (Fraction(60, 120), 0.1),
        (Fraction(1), 0.01),
    )

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise unknown("schedule shape", self.shape, SHAPES, "an optimizer's schedule")
        times = [time for time, _ in self.knots]
        if times != sorted(times) or not times or times[0] != 0 or times[-1] > 1:
            found = f"times {[str(time) for time in times]}"
            remedy = "write them as shares of the epochs, such as 40/120"
            raise expected("knots from 0 to at most 1 of the run, in order", found, remedy)
        for _, factor in self.knots:
            within("a knot's factor", factor, 0)

    def factor(self, progress: float) -> float:
        if self.shape == "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        # Compared as floats: the same ratio is then rounded in the same way on both sides.
        knots = [(float(time), value) for time, value in self.knots]
        time, value = [knot for knot in knots if knot[0] <= progress][-1]
        after = [knot for knot in knots if knot[0] > progress]
        if self.shape == "step" or not after:
            return value
        next_time, next_value = after[0]
        return value + (next_value - value) * (progress - time) / (next_time - time)


@dataclass(frozen=True)
class Optim:
    """An optimizer and its schedule."""

    lr: float
    weight_decay: float
    algorithm: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise unknown("optimizer", self.algorithm, ALGORITHMS, "an optim entry")
        if self.lr <= 0:
            raise expected("a learning rate above 0", f"lr = {self.lr}", "write lr: 0.01")
        within("weight_decay", self.weight_decay, 0)
        within("momentum", self.momentum, 0, 1)
        if self.nesterov and self.momentum == 0:
            raise expected("a momentum above 0 with nesterov", "momentum = 0", "write momentum: 0.9")

    def start(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        device = next(model.parameters()).device.type
        settings: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        settings["fused"] = device in ("cpu", "cuda")  # one call for all tensors: half the time
        if self.algorithm == "adam":
            return torch.optim.Adam(model.parameters(), **settings)
        return torch.optim.SGD(
            model.parameters(), momentum=self.momentum, nesterov=self.nesterov, **settings
        )

    def rate(self, progress: float) -> float:
        return self.lr * self.schedule.factor(progress)

    def lr_at(self, clock: Clock) -> float:
        return self.rate(clock.progress)


@dataclass(frozen=True)
class Average:
    """An exponential moving average; with warm-up its decay is min(decay, (s+1)/(s+10))."""

    decay: float = 0.999
    warmup: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise expected("a decay in [0, 1)", f"decay = {self.decay}", "write decay: 0.999")

    def decay_at(self, step: int) -> float:
        return min(self.decay, (step + 1) / (step + 10)) if self.warmup else self.decay


@dataclass(frozen=True)
class Single:
    """One objective trained by one optimizer: most baselines, and each learner of Generalist."""

    objective: Objective
    optim: Optim
    average: Average | None = None

    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return self.objective.slug

    def start(self, lab: Lab, role: str = "learner") -> Learner:
        return Learner(self, lab, role)


class Learner:
    """The live state of a `Single`."""

    def __init__(self, single: Single, lab: Lab, role: str = "learner") -> None:
        self.single = single
        self.model = lab.new_model()
        self.optimizer = single.optim.start(self.model)
        self.generator = lab.generator(role)
        self.averaged = copy.deepcopy(self.model) if single.average else None
        self.grows = bool(growing(single.objective))

    def step(
        self,
        batch: Batch,
        clock: Clock,
        lr: float | None = None,
        objective: Callable[..., torch.Tensor] | None = None,
    ) -> Mapping[str, float]:
        """One update; a method may pass its own learning rate or loss."""
        lr = self.single.optim.lr_at(clock) if lr is None else lr
        self.model.train()
        if objective is None:
            own = self.single.objective
            objective = grown(own, clock) if self.grows else own
        loss = objective(self.model, batch, clock, self.generator)
        value = finite(loss, clock, self.single.slug)
        self.optimizer.zero_grad(set_to_none=True)
        with distributed.bucketed(self.model.parameters()):
            loss.backward()
        self.apply(clock, lr)
        return {"loss": value, "lr": lr}

    def apply(self, clock: Clock, lr: float) -> None:
        """Update the weights with the parameters' gradients, then the weight average."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        if self.averaged is not None and self.single.average is not None:
            decay = self.single.average.decay_at(clock.steps_done)
            mix_into(self.averaged, [self.model], [1.0], decay)

    def deployed(self) -> torch.nn.Module:
        return self.model if self.averaged is None else self.averaged

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }
        if self.averaged is not None:
            state["averaged"] = self.averaged.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])


def growing(method: Any) -> list[Threat]:
    """Its threats whose radius grows."""
    return [part for part in components(method) if isinstance(part, Threat) and part.warmup]


def grown(part: Any, clock: Clock) -> Any:
    """A part of a method with its threats as they are in `clock`'s step."""
    if isinstance(part, Threat):
        return part.at(Fraction(clock.steps_done + 1, clock.steps_in_all))
    if isinstance(part, tuple):
        return tuple(grown(own, clock) for own in part)
    if names := field_names(part.__class__):
        return replace(part, **{name: grown(getattr(part, name), clock) for name in names})
    return part


def finite(loss: torch.Tensor, clock: Clock, slug: str) -> float:
    """The loss as a number; refused if it is not finite."""
    value = float(loss.detach())
    if not math.isfinite(value):
        found = f"{value} for {slug} at epoch {clock.epoch + 1}, step {clock.step + 1}"
        raise expected("a finite loss", found, "lower its learning rate or look at its inputs")
    return value
