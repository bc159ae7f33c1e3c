"""What a job is to do: a training (training/runs.py), or the probes of an evaluation; as JSON.

The workflow plans; a job gets its spec on the command line and plans nothing.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from harness.attacks import autoattack
from harness.attacks.attack import Staged
from harness.attacks.pgd import PGD
from harness.core.errors import expected
from harness.core.identity import canonical, fingerprint, restored
from harness.grid.build import registry
from harness.training import learner, runs
from harness.training.runs import TrainRun


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


def write_spec(methods: str, work: TrainRun | EvalRun) -> str:
    """A job's work as JSON; `methods` is the address of the registry that has its classes."""
    content = {"registry": methods, "id": work.id, "run": canonical(work)}
    return json.dumps(content, separators=(",", ":"))


def read_spec(text: str) -> Any:
    """The TrainRun or EvalRun that `write_spec` wrote, the same to the last field."""
    try:
        content = json.loads(text)
        places = [runs, learner, autoattack, importlib.import_module(__name__)]
        methods = registry(content["registry"]).values()
        places += [importlib.import_module(cls.__module__) for cls in methods]
        known = [one for place in places for one in vars(place).values() if isinstance(one, type)]
        classes = {one.__name__: one for one in known if is_dataclass(one)}
        work = restored(content["run"], classes)
        same = work.id == content["id"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise expected("a spec that the workflow wrote", f"{error!r}", "start Snakemake") from None
    if not same:
        raise expected(f"the spec of {content['id']}", f"that of {work.id}", "start Snakemake")
    return work
