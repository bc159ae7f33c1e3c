"""Natural training (NT): empirical risk minimisation, no adversary.

Loss: CE(f(x), y). The papers train it with learning rate 0.1 and weight decay 5e-4.

Certain: everything.
Compared: with main.py of PKU-ML/Generalist, as its learner, five epochs in float64: 1e-16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.attacks.losses import cross_entropy
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock


@dataclass(frozen=True)
class NT:
    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return "nt"

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        return cross_entropy(model(batch.x), batch.y).mean()
