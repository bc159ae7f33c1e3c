"""Generalist: Wang & Wang, CVPR 2023, Algorithm 1; Generalist++, Algorithms 1 (D) and 2 (T).

Base learners start from the same weights and get the same augmented minibatch, each with its own loss,
optimizer, schedule and, optionally, weight average. After every step
    theta_g <- a' theta_g + (1 - a') sum_a gamma_a theta_a                       (CVPR eq. 7, ++ eq. 6)
and, from t' on, every c epochs all learners are overwritten by theta_g. theta_g is what is deployed.

One implementation for any number of learners: D(NT+l_inf) = [at, nt], D(l_inf+l_2) = [at, at_l2],
T = [at, nt, at_l2]. t' and c are shares of the epochs ("75/120", "5/120"), so that a smaller budget
keeps the papers' proportions; redistribution then happens at the step nearest to each multiple of c.
`parallel` runs each learner in its own process (generalist/parallel.py): the same weights, faster.
`late` starts the other learners at the first redistribution (generalist/late.py), a control of ours.

The authors' code differs from their text; each difference is a field, and the preset `released` in
config/presets.yaml sets them all: the final gamma, `shared_lr`, `redistribution`, `clock`, `average`
(warm-up of a'), each learner's `average`, and the learners' eps, step and schedule.

A redistribution happens just before the next step, not just after the last one: no weight differs, and
in between the learners can be measured as they were "before being re-initialized" (Zipper C.1). Each
learner has the random stream that it would have alone, so until the first redistribution AT inside
Generalist is bit by bit the run `at`. Learners thus share random numbers as they share minibatches.

Certain: the updates of Algorithm 1 and 2, t' = 75, c = 5, a' = 0.999, gamma = (1, 1, 1, 0), b = 0.5.
In the released code the optimizer's state and each learner's own weight average survive a
redistribution, which overwrites the raw learners only; the texts say nothing of either.
Guess: `unified` mixes raw learners. CVPR A.1 can also be read as averaged base learners ("piecewise
linear learning rate strategy for performing weight averaging in base-learners"): that reading is
the row `generalist_d_nt_linf_averaged`. With other budgets than 120 epochs, t', c and gamma's
breakpoints stay shares of the run.
Compared: with main.py of PKU-ML/Generalist (three crashes patched), preset `released`, epochs 70 to 86
in float64: 1.1e-1 as it was then, 4.7e-16 in all five networks with the learners' averages kept and the
code's clock, as now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, TypeVar

from generalist.gamma import BREAKPOINTS, check_gamma, check_shares, weights_at
from harness.core.errors import expected, unknown
from harness.machine.device import torch
from harness.training.averaged import Averaged
from harness.training.contracts import Batch, Clock, Lab, Method
from harness.training.learner import Average, Learner, Single
from harness.training.weights import copy_into, mix_into

REDISTRIBUTIONS = ("once", "throughout")
OVERWRITTEN = ("learners", "averages")
CLOCKS = ("step", "epoch")
_EPOCHS = 120  # of the papers: their code's epoch is a 120th of our run
T = TypeVar("T")
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
    overwrites: str = "learners"  # or their own weight averages as well
    clock: str = "step"  # of learning rates and gamma; or constant within an epoch (released)
    shared_lr: bool = False  # every learner steps with the first one's learning rate (released)
    parallel: bool | None = None  # one process per learner
    late: bool | None = None  # the other learners are born at the first redistribution

    # 2: learners draw from the stream that they have alone; their averages survive a redistribution
    REVISION: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if len(self.learners) < 2:
            raise expected("two learners or more", len(self.learners), "list at least two")
        check_gamma(self.gamma)
        check_shares(self.shares, len(self.learners))
        if not 0 < self.c <= 1:
            raise expected(
                "a communication period c above 0 (a share of the epochs, at most 1)",
                f"c = {self.c}",
                "write c: 5/120 for every 5 of 120 epochs",
            )
        if not 0 <= self.t_prime <= 1:
            raise expected("t' as a share of the epochs", self.t_prime, "write t_prime: 75/120")
        for name, known in (
            ("redistribution", REDISTRIBUTIONS),
            ("overwrites", OVERWRITTEN),
            ("clock", CLOCKS),
        ):
            if getattr(self, name) not in known:
                raise unknown(name, getattr(self, name), known, "generalist")
        if self.late and (self.parallel or self.meeting > self.falls):
            needed = "no processes, and gamma = 1 until the first redistribution, with late: true"
            raise expected(needed, f"gamma = {list(self.gamma)}", "leave late out")

    @property
    def meeting(self) -> Fraction:
        """The share of the run before the first redistribution, or before the epoch throughout which
        there are some."""
        whole = ceil(self.t_prime / self.c) * self.c
        return whole - Fraction(self.redistribution == "throughout", _EPOCHS)

    @property
    def falls(self) -> Fraction:
        """The share of the run after which gamma is no longer 1; below 0 if it never is."""
        first = next((place for place, own in enumerate(self.gamma) if own != 1), BREAKPOINTS)
        return Fraction(first - 1, BREAKPOINTS - 1)

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

    @property
    def alone_until(self) -> Fraction:
        """The share of the run in which no learner sees another: no redistribution, and gamma is 1.

        None where a learner steps in another way than alone. `throughout` begins within epoch t'.
        """
        if self.shared_lr or self.late or self.clock != "step":
            return Fraction(0)
        earlier = Fraction(self.redistribution == "throughout", _EPOCHS)
        return min(self.falls, self.t_prime - earlier)

    @property
    def parts(self) -> tuple[Method, ...]:
        """What its learners are until then; theta_g is the first one's average, without EMA itself."""
        first, *others = self.learners
        return (Averaged(first, self.average) if self.average.decay else first, *others)

    def joined(self, states: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The state of its training, of those of its parts."""
        first, *others = states
        if self.average.decay:
            return {"learners": [first["of"], *others], "global": first["averaged"]}
        raw = first.get("averaged", first["model"])
        kept = {name: own if own.is_floating_point() else own * 0 for name, own in raw.items()}
        return {"learners": list(states), "global": kept}  # theta_g counts no batches

    def reported(self, losses: Sequence[float], weights: Sequence[float]) -> dict[str, float]:
        """What a step reports, or an epoch: each learner's loss and weight."""
        slugs = [single.slug for single in self.learners]
        found = {f"loss_{slug}": loss for slug, loss in zip(slugs, losses, strict=True)}
        return found | {f"gamma_{slug}": own for slug, own in zip(slugs, weights, strict=True)}

    def start(self, lab: Lab) -> GeneralistTraining:
        if self.parallel:
            from generalist.parallel import ParallelTraining

            return ParallelTraining(self, lab)
        if self.late:
            from generalist.late import LateTraining

            return LateTraining(self, lab)
        return GeneralistTraining(self, lab)

    def progress(self, clock: Clock) -> float:
        """The share of the run that learning rates and gamma depend on."""
        if self.clock == "step":
            return clock.progress
        return self._epoch(clock.steps_done + 1, clock) / _EPOCHS

    def weights_at(self, clock: Clock) -> tuple[float, ...]:
        return weights_at(self.gamma, self.shares, self.progress(clock))

    def rates_at(self, clock: Clock) -> list[float]:
        """Each learner's learning rate."""
        singles = self.learners[:1] * len(self.learners) if self.shared_lr else self.learners
        return [single.optim.rate(self.progress(clock)) for single in singles]

    def redistributes_before(self, clock: Clock) -> bool:
        """B(t, t', c): are the learners overwritten before `clock`'s step?"""
        done = clock.steps_done
        if done == 0:
            return False
        if self.redistribution == "once":
            every = self.c * clock.steps_in_all
            wanted = round(done / every) * every  # the nearest multiple of c, and as a whole step
            return done == round(wanted) and wanted >= self.t_prime * clock.steps_in_all
        epoch = self._epoch(done, clock)
        return epoch % max(1, round(self.c * _EPOCHS)) == 0 and epoch >= self.t_prime * _EPOCHS

    @staticmethod
    def _epoch(step: int, clock: Clock) -> int:
        """The papers' epoch of a step; both are counted from 1."""
        return -(-step * _EPOCHS // clock.steps_in_all)


class GeneralistTraining:
    """The live state: the base learners and the global learner theta_g."""

    def __init__(self, generalist: Generalist, lab: Lab) -> None:
        self.generalist = generalist
        self.learners = self._start(lab)
        self.theta_g = lab.new_model()

    def networks(self) -> dict[str, torch.nn.Module]:
        """The learners, as they enter the mixture."""
        return self._named(own.deployed() for own in self.learners)

    def shares(self, clock: Clock) -> dict[str, float]:
        return self._named(self.generalist.weights_at(clock))

    def redistributed(self, clock: Clock) -> dict[str, torch.nn.Module] | None:
        """theta_g in place of every learner, except for weight averages that are kept."""
        if not self.generalist.redistributes_before(clock):
            return None
        keeps = self.generalist.overwrites == "learners"
        return self._named(
            own.deployed() if keeps and single.average else self.theta_g
            for single, own in zip(self.generalist.learners, self.learners, strict=True)
        )

    def _named(self, values: Iterable[T]) -> dict[str, T]:
        slugs = [single.slug for single in self.generalist.learners]
        return dict(zip(slugs, values, strict=True))

    def _start(self, lab: Lab) -> list[Any]:
        return [single.start(lab) for single in self.generalist.learners]

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        if self.generalist.redistributes_before(clock):
            self._redistribute()
        losses = self._losses(batch, clock, self.generalist.rates_at(clock))
        weights = self.generalist.weights_at(clock)
        sources = [learner.deployed() for learner in self.learners]
        mix_into(self.theta_g, sources, weights, self.generalist.average.decay_at(clock.steps_done))
        return self.generalist.reported(losses, weights)

    def _losses(self, batch: Batch, clock: Clock, rates: list[float]) -> list[float]:
        """One step of every learner."""
        pairs = zip(self.learners, rates, strict=True)
        return [learner.step(batch, clock, lr)["loss"] for learner, lr in pairs]

    def _redistribute(self) -> None:
        for learner in self.learners:
            overwrite(learner, self.theta_g, self.generalist.overwrites)

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


def overwrite(learner: Learner, theta_g: torch.nn.Module, what: str) -> None:
    """Redistribute theta_g to one learner; `what` is one of OVERWRITTEN."""
    copy_into(learner.model, theta_g)
    if learner.averaged is not None and what == "averages":
        copy_into(learner.averaged, theta_g)
