"""AutoAttack: an image survives it if it survives all four of `STANDARD`, from `pyautoattack`.

A table joins the records of the four where it has them as columns, and else runs a `Cascade`, in which
each component attacks only what still stands (`Columns.autoattack` in grid/columns.py).

Pitfalls of `pyautoattack` that are handled here:
- it keeps state, so each call makes a new object;
- `custom` keeps five restarts, so the object is built as `standard`;
- it must not have more target classes than there are;
- it wants contiguous float32;
- it reseeds torch's global generator on every batch, so it runs inside `fork_rng`;
- FAB would differentiate the parameters, so `perturb` freezes them;
- its warnings are log records, which are collected;
- its own state file does not reload, so the evaluation resumes by shards of examples.

APGD_dlr is not part of AutoAttack's standard version, but the papers have a column for it. The version
`rand`, for networks that draw at random, is APGD_ce and APGD_dlr; each gradient is a mean of 20 passes.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.attacks.attack import OneBall
from harness.attacks.balls import Ball
from harness.attacks.work import Work
from harness.core.errors import unknown
from harness.machine.device import torch

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module

STANDARD = ("apgd-ce", "apgd-t", "fab-t", "square")
COMPONENTS = (*STANDARD, "apgd-dlr")
RANDOM = ("apgd-ce", "apgd-dlr")  # of the version `rand`
_PASSES = 20  # of the version `rand`, for each gradient
_TARGETS_L1 = 5
_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}
LOGGER = "auto-attack"


@dataclass(frozen=True)
class Component(OneBall):
    """One component. The defaults are AutoAttack's own; a scale may shorten them."""

    ball: Ball
    name: str
    steps: int = 100
    targets: int = 9
    queries: int = 5000
    passes: int | None = None  # averaged for each gradient (EOT), for networks that draw at random

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.name not in COMPONENTS:
            raise unknown("component", self.name, COMPONENTS, "AutoAttack")

    @property
    def slug(self) -> str:
        often = f"_{self.passes}_passes" if self.passes else ""
        return f"{self.name.replace('-', '_')}_{self.ball.norm}{often}"

    def work(self, classes: int) -> Work:
        """For l_inf and l_2, without some ten forward passes that inspect the network."""
        targets, steps = min(self.targets, classes - 1), (self.steps + 1) * (self.passes or 1)
        return {
            "apgd-ce": Work(input_gradients=steps),
            "apgd-dlr": Work(input_gradients=steps),
            "apgd-t": Work(input_gradients=targets * steps),
            "fab-t": Work(forward=targets * self.steps, input_gradients=targets * self.steps),
            "square": Work(forward=self.queries),
        }[self.name]

    def __call__(self, model: Module, x: Tensor, y: Tensor, *, generator: Generator) -> Tensor:
        seed = int(torch.randint(2**31 - 1, (1,), generator=generator, device=generator.device))
        if not len(x):
            return x
        images = x.contiguous(memory_format=torch.contiguous_format).float()
        with torch.no_grad():
            classes = model(images[:1]).shape[1]
        tracing = sys.gettrace()
        devices = [x.device] if x.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices=devices):
                attack = self._prepared(model, classes, seed, x.device)
                found, _ = attack.run_standard_evaluation(images, y, batch_size=len(x))
        finally:
            sys.settrace(tracing)  # its check for dynamic defences switches tracing off
        return found.to(x.dtype)

    def _prepared(self, model: Module, classes: int, seed: int, device: Any) -> Any:
        from pyautoattack import AutoAttack

        norm, eps = _NORMS[self.ball.norm], self.ball.radius
        attack = AutoAttack(model, norm=norm, eps=eps, seed=seed, device=device)
        attack.attacks_to_run = [self._possible(classes)]
        targets = min(self.targets, classes - 1)
        attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = targets
        if self.ball.norm == "l1":  # where the standard version has five
            attack.apgd_targeted.n_target_classes = min(targets, _TARGETS_L1)
        if self.passes:
            attack.version = "rand"  # which does not warn of a network that draws at random
        for apgd in (attack.apgd, attack.apgd_targeted):
            apgd.eot_iter = self.passes or 1
            apgd.n_iter = apgd.n_iter_orig = self.steps
            apgd.n_iter_2 = max(int(0.22 * self.steps), 1)
            apgd.n_iter_min = max(int(0.06 * self.steps), 1)
            apgd.size_decr = max(int(0.03 * self.steps), 1)
        attack.fab.n_iter, attack.square.n_queries = self.steps, self.queries
        return attack

    def _possible(self, classes: int) -> str:
        """The component, or the nearest one for so few classes: DLR needs a third-largest logit."""
        needs = {"apgd-t": 4, "apgd-dlr": 3}.get(self.name, 2)
        if classes >= needs:
            return self.name
        instead = "apgd-dlr" if classes == 3 else "apgd-ce"
        logging.getLogger(LOGGER).warning(
            f"{self.name} needs {needs} classes, found {classes}: {instead} is used instead"
        )
        return instead


@dataclass(frozen=True)
class Cascade:
    """Several components in turn, each on the images that survived the ones before."""

    components: tuple[Component, ...]

    REVISION: ClassVar[int] = 1

    @property
    def balls(self) -> tuple[Ball, ...]:
        return self.components[0].balls

    @property
    def slug(self) -> str:
        return f"aa{'_rand' * bool(self.components[0].passes)}_{self.components[0].ball.norm}"

    @property
    def stages(self) -> tuple[Component, ...]:
        return self.components

    def work(self, classes: int) -> Work:
        return sum((component.work(classes) for component in self.components), Work())

    @classmethod
    def standard(cls, ball: Ball, **budget: int) -> Cascade:
        """AutoAttack's standard version."""
        return cls(tuple(Component(ball, name, **budget) for name in STANDARD))

    @classmethod
    def random(cls, ball: Ball, **budget: int) -> Cascade:
        """AutoAttack's version for networks that draw at random."""
        return cls(tuple(Component(ball, name, **budget, passes=_PASSES) for name in RANDOM))
