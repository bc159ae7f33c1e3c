"""A method that deploys a moving average of another one's weights, as Generalist deploys theta_g.

    theta <- a' theta + (1 - a') theta_of        after every step

It is the control that the papers lack: Generalist's model alone gets an average there. The training
inside is bit by bit the one without an average; a scale writes a' once, for both.

Not for RMC: its network is chosen on a curve when the training ends, so no step has one to average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab, Method
from harness.training.learner import Average
from harness.training.weights import copy_into, mix_into


@dataclass(frozen=True)
class Averaged:
    of: Method
    average: Average = field(default_factory=Average)  # a'

    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return f"{self.of.slug}_averaged"

    @property
    def serial(self) -> Method:
        """The method with the same passes: an average takes none."""
        return self.of

    def start(self, lab: Lab) -> AveragedTraining:
        return AveragedTraining(self, lab)


class AveragedTraining:
    def __init__(self, method: Averaged, lab: Lab) -> None:
        self.method = method
        self.training, self.averaged = method.of.start(lab), lab.new_model()
        copy_into(self.averaged, self.training.deployed())

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        reported = self.training.step(batch, clock)
        decay = self.method.average.decay_at(clock.steps_done)
        mix_into(self.averaged, [self.training.deployed()], [1.0], decay)
        return reported

    def deployed(self) -> torch.nn.Module:
        return self.averaged

    def state_dict(self) -> dict[str, Any]:
        return {"of": self.training.state_dict(), "averaged": self.averaged.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.training.load_state_dict(state["of"])
        self.averaged.load_state_dict(state["averaged"])
