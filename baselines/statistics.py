"""BatchNorm statistics estimated anew (SWA): Izmailov, Podoprikhin, Garipov, Vetrov, Wilson, UAI 2018.

No weight of a trained network changes. A moving average of networks has an average of their statistics,
which may fit none of its layers; so the paper (arXiv 1803.05407) passes over the training images once
more when weights are averaged. Here that is a control: is a mixture held back by its statistics?

In the first epoch each batch, augmented as in training, is passed forward once; a statistic is the mean
over these batches. With a threat the images are attacked first, on the network as it was. Later epochs,
where a scale asks for them, change nothing.

Certain: one pass, the mean over batches. Guess: the augmentation stays; attacked images are ours.
Compared: not compared.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.attacks.attack import Threat, perturb
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.core.errors import expected
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab
from harness.training.learner import finite


@dataclass(frozen=True)
class Statistics:
    threat: Threat | None = None  # None: of natural images

    REVISION: ClassVar[int] = 1
    NEEDS_WHOLE_BATCH: ClassVar[str] = "estimates the statistics of whole batches"
    PARENTS: ClassVar[tuple[int, ...]] = (1,)

    @property
    def slug(self) -> str:
        return "statistics"

    def start(self, lab: Lab) -> StatisticsTraining:
        return StatisticsTraining(self, lab)


class StatisticsTraining:
    def __init__(self, method: Statistics, lab: Lab) -> None:
        self.method, (self.parent,) = method, lab.parents
        self.generator = lab.generator("learner")
        self.network = copy.deepcopy(self.parent)
        normal = torch.nn.modules.batchnorm._BatchNorm
        layers = [layer for layer in self.network.modules() if isinstance(layer, normal)]
        if not layers:
            raise expected("a network with BatchNorm", "none", "take the row out of the grid")
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the mean over all batches

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        if clock.epoch:
            return {}
        x = batch.x
        if self.method.threat:
            attack = PGD.of(self.method.threat)
            x = perturb(attack, self.parent, x, batch.y, generator=self.generator)
        with torch.no_grad():
            loss = cross_entropy(self.network.train()(x), batch.y).mean()
        self.network.eval()
        return {"loss": finite(loss, clock, self.method.slug)}

    def deployed(self) -> torch.nn.Module:
        return self.network

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.generator.set_state(state["generator"].cpu())
