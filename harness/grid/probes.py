"""What is asked of a trained model: probes, each one record, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from harness.attacks.attack import Staged
from harness.attacks.pgd import PGD
from harness.core.identity import fingerprint


@dataclass(frozen=True)
class Probe:
    """One record: a data set's first test images under one attack (None: as they are).

    Batch size and seed are part of it: they change what a random attack finds.
    """

    dataset: str
    examples: int
    attack: Staged | None
    batch_size: int
    seed: int = 0
    corruptions: int | None = None  # the generator's revision, for sets that we may have made
    heat: bool | None = None  # keep Grad-CAM maps of the predictions too

    REVISION: ClassVar[int] = 2  # 2: PGDs of any number of steps start from the same noise

    @cached_property
    def id(self) -> str:
        attack = "natural" if self.attack is None else self.attack.slug
        return f"{self.dataset.replace('/', '_')}-{attack}-{fingerprint(self)}"

    @cached_property
    def family(self) -> str:
        """What it shares its random numbers with: PGD of fewer steps is the same run, cut short."""
        if isinstance(self.attack, PGD):
            return replace(self, attack=replace(self.attack, steps=1), heat=None).id
        return self.id


@dataclass(frozen=True)
class EvalRun:
    """Everything that any table or figure of a scale wants to know about one model."""

    run: str
    probes: tuple[Probe, ...]

    REVISION: ClassVar[int] = 2  # 2: with the labels and the cost of training

    @cached_property
    def id(self) -> str:
        return f"{self.run}-{fingerprint(self)}"
