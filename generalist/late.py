"""Generalist whose other learners are born late: at the first redistribution, as copies of theta_g.

As long as gamma is 1 the other learners have no say, and the first redistribution overwrites them; so
what they learnt until then is lost but for their optimizers' momentum (docs/findings.md). Born only
then, they save that training. A control of ours, not a method of the papers.

Each keeps the schedule of the whole run. Its random stream begins with its birth.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor
from typing import Any

from generalist.generalist import Generalist, GeneralistTraining, overwrite
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab
from harness.training.weights import mix_into


class LateTraining(GeneralistTraining):
    """Until the others are born it is the first learner's training, with its moving average."""

    def __init__(self, generalist: Generalist, lab: Lab) -> None:
        super().__init__(generalist, lab)
        self.born = False

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        birth = self._birth(clock)
        self.born = clock.steps_done >= birth
        if clock.steps_done == birth:  # their averages, too, begin here
            for learner in self.learners[1:]:
                overwrite(learner, self.theta_g, "averages")
        if self.born:
            reported = super().step(batch, clock)
            whole = clock.steps_done - clock.step >= birth  # of other epochs a mean would be wrong
            return reported if whole else self._of_the_first(reported)
        first = self.learners[0]
        loss = first.step(batch, clock, self.generalist.rates_at(clock)[0])["loss"]
        decay = self.generalist.average.decay_at(clock.steps_done)
        mix_into(self.theta_g, [first.deployed()], [1.0], decay)
        shares = {f"gamma_{name}": share for name, share in self.shares(clock).items()}
        return {f"loss_{first.single.slug}": loss} | shares

    def _birth(self, clock: Clock) -> int:
        """The step before which the first redistribution is."""
        share = self.generalist.meeting * clock.steps_in_all
        return floor(share) + 1 if self.generalist.redistribution == "throughout" else round(share)

    def _of_the_first(self, reported: Mapping[str, float]) -> dict[str, float]:
        others = {f"loss_{own.single.slug}" for own in self.learners[1:]}
        return {name: value for name, value in reported.items() if name not in others}

    def networks(self) -> dict[str, torch.nn.Module]:
        there = super().networks()
        return there if self.born else dict(list(there.items())[:1])

    def redistributed(self, clock: Clock) -> dict[str, torch.nn.Module] | None:
        """None at the birth: there is nobody yet who could be overwritten."""
        return super().redistributed(clock) if self.born else None

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"born": self.born}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.born = state["born"]
