"""Generalist: Wang & Wang, CVPR 2023, Algorithm 1; Generalist++, Algorithms 1 (D) and 2 (T).

Base learners start from the same weights and see the same augmented minibatch, each with its own
loss, optimizer, schedule and, optionally, weight average. After every step
    theta_g <- a' theta_g + (1 - a') sum_a gamma_a theta_a                       (CVPR eq. 7, ++ eq. 6)
and, from t' on, every c epochs all learners are overwritten by theta_g. theta_g is what is deployed.

One implementation for any number of learners: D(NT+l_inf) = [at, nt], D(l_inf+l_2) = [at, at_l2],
T = [at, nt, at_l2]. t' and c are shares of the epochs ("75/120", "5/120"), so that a smaller budget
keeps the papers' proportions; redistribution then happens at the step nearest to each multiple of c.
`parallel` runs each learner in a process of its own (generalist/parallel.py): the same weights, sooner.

The authors' code differs from their text; each difference is a field, and the preset `released` in
config/grid.yaml sets them all: the final gamma, `shared_lr`, `redistribution`, `average` (warm-up of
a'), each learner's `average`, and the learners' eps, step and schedule.

Certain: the updates of Algorithm 1 and 2, t' = 75, c = 5, a' = 0.999, gamma = (1, 1, 1, 0), b = 0.5.
Guesses: where neither text nor code says, optimizer momentum survives a redistribution, and a learner's
own weight average is overwritten too (else it would pull the mixture back to before it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

from generalist.gamma import check_gamma, check_shares, weights_at
from harness.contracts import Batch, Clock, Lab
from harness.errors import expected, unknown
from harness.lazy import torch
from harness.learner import Average, Learner, Single
from harness.weights import copy_into, mix_into

REDISTRIBUTIONS = ("once", "throughout")
_EPOCHS = 120  # of the papers: what their code does for an epoch, we do for a 120th of a run
_TASKS = {"nt": "nt", "at": "linf", "at_l2": "l2"}  # a learner's slug -> its task in the papers


@dataclass(frozen=True)
class Generalist:
    learners: tuple[Single, ...]
    gamma: tuple[float, ...] = (1.0, 1.0, 1.0, 0.0)  # of the first learner
    shares: tuple[float, ...] = (1.0,)  # of 1 - gamma, among the other learners
    t_prime: Fraction = Fraction(75, 120)  # t', a share of the epochs
    c: Fraction = Fraction(5, 120)  # a share of the epochs
    average: Average = field(default_factory=Average)  # a'; decay 0 is "without EMA"
    redistribution: str = "once"  # per period, or throughout the period's last epoch (released)
    shared_lr: bool = False  # every learner steps with the first one's learning rate (released)
    parallel: bool | None = None  # one process per learner

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if len(self.learners) < 2:
            raise expected("two learners or more", len(self.learners), "list at least two")
        check_gamma(self.gamma)
        check_shares(self.shares, len(self.learners))
        if self.c <= 0:
            raise expected(
                "a communication period c above 0 (a share of the epochs)",
                f"c = {self.c}",
                "write c: 5/120 for every 5 of 120 epochs",
            )
        if not 0 <= self.t_prime <= 1:
            raise expected("t' as a share of the epochs", self.t_prime, "write t_prime: 75/120")
        if self.redistribution not in REDISTRIBUTIONS:
            raise unknown("redistribution", self.redistribution, REDISTRIBUTIONS, "generalist")

    @property
    def slug(self) -> str:
        tasks = [_TASKS.get(learner.slug, learner.slug) for learner in self.learners]
        if sorted(tasks) == ["l2", "linf", "nt"]:
            return "generalist_t"
        known = [task for task in _TASKS.values() if task in tasks]
        others = [task for task in tasks if task not in known]
        letter = {2: "d", 3: "t"}.get(len(tasks), f"{len(tasks)}way")
        return "_".join(["generalist", letter, *known, *others])

    @property
    def processes(self) -> int:
        return len(self.learners) if self.parallel else 1

    @property
    def serial(self) -> Generalist:
        return replace(self, parallel=None)

    def start(self, lab: Lab) -> GeneralistTraining:
        if self.parallel:
            from generalist.parallel import ParallelTraining

            return ParallelTraining(self, lab)
        return GeneralistTraining(self, lab)

    def weights_at(self, clock: Clock) -> tuple[float, ...]:
        return weights_at(self.gamma, self.shares, clock.progress)

    def redistributes_after(self, clock: Clock) -> bool:
        """B(t, t', c): is `clock`'s step the last one before a redistribution?"""
        done = clock.steps_done + 1
        every = self.c * clock.steps_in_all
        if self.redistribution == "once":
            nearest = round(round(done / every) * every)  # the multiple of c, as a whole step
            return done == nearest and done >= self.t_prime * clock.steps_in_all
        epoch = -(-done * _EPOCHS // clock.steps_in_all)
        return epoch % max(1, round(self.c * _EPOCHS)) == 0 and epoch >= self.t_prime * _EPOCHS


class GeneralistTraining:
    """The live state: the base learners and the global learner theta_g."""

    def __init__(self, generalist: Generalist, lab: Lab) -> None:
        self.generalist = generalist
        self.learners = self._start(lab)
        self.theta_g = lab.new_model()

    def networks(self) -> dict[str, torch.nn.Module]:
        """The learners, as they enter the mixture."""
        slugs = [single.slug for single in self.generalist.learners]
        return dict(zip(slugs, (own.deployed() for own in self.learners), strict=True))

    def _start(self, lab: Lab) -> list[Any]:
        return [single.start(lab, role(n)) for n, single in enumerate(self.generalist.learners)]

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        singles = self.generalist.learners
        lr = singles[0].optim.lr_at(clock) if self.generalist.shared_lr else None
        losses = self._losses(batch, clock, lr)
        weights = self.generalist.weights_at(clock)
        sources = [learner.deployed() for learner in self.learners]
        mix_into(self.theta_g, sources, weights, self.generalist.average.decay_at(clock.steps_done))
        if self.generalist.redistributes_after(clock):
            self._redistribute()
        names = [single.slug for single in singles]
        told = {f"loss_{name}": loss for name, loss in zip(names, losses, strict=True)}
        return told | {f"gamma_{name}": share for name, share in zip(names, weights, strict=True)}

    def _losses(self, batch: Batch, clock: Clock, lr: float | None) -> list[float]:
        """One step of every learner."""
        return [learner.step(batch, clock, lr)["loss"] for learner in self.learners]

    def _redistribute(self) -> None:
        for learner in self.learners:
            overwrite(learner, self.theta_g)

    def deployed(self) -> torch.nn.Module:
        return self.theta_g

    def state_dict(self) -> dict[str, Any]:
        return {
            "learners": [learner.state_dict() for learner in self.learners],
            "global": self.theta_g.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for learner, own in zip(self.learners, state["learners"], strict=True):
            learner.load_state_dict(own)
        self.theta_g.load_state_dict(state["global"])


def role(number: int) -> str:
    """A random stream per learner: the draws do not depend on who goes first, or where."""
    return f"learner{number}"


def overwrite(learner: Learner, theta_g: torch.nn.Module) -> None:
    copy_into(learner.model, theta_g)
    if learner.averaged is not None:
        copy_into(learner.averaged, theta_g)
