"""A run that trains one model, and what it is made of: recipe, selection, watch."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any, ClassVar

from harness.attacks.attack import ORDERS, Threat
from harness.attacks.pgd import PGD
from harness.core.errors import expected, unknown
from harness.core.paths import fingerprint
from harness.machine.device import Arithmetic
from harness.training.contracts import Method, components
from harness.training.learner import Single, growing

SELECTIONS = ("last", "validation", "paper-test")


@dataclass(frozen=True)
class Augment:
    """Random crop after zero padding, random flip, and Cutout: a black square of that side.

    `random_resized_crop` replaces `pad`: a random box of the image, resized to a square of that side.
    """

    pad: int
    flip: bool
    cutout: int | None = None
    random_resized_crop: int | None = None

    def __post_init__(self) -> None:
        if self.pad and self.random_resized_crop:
            found = f"pad: {self.pad} with random_resized_crop"
            raise expected("pad or random_resized_crop", found, "write pad: 0")


@dataclass(frozen=True)
class Recipe:
    """What all learners of a run share: epochs, batches, augmentation."""

    epochs: int
    batch_size: int
    augment: Augment
    examples: int | None = None  # train on the first n images only
    amp: str | None = None  # "bf16": steps under autocast, for GPUs; evaluation stays in float32
    tf32: bool | None = None  # steps on a GPU in TF32 or without it; None: as torch has it
    deterministic: bool | None = None  # the same bits on a GPU every time, also after a stop
    compile: bool | None = None  # torch.compile, checked against the plain network at the start

    def __post_init__(self) -> None:
        if self.amp not in (None, "bf16"):
            raise unknown("precision", self.amp, ("bf16",), "a recipe's amp")

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.amp is not None, self.tf32, bool(self.deterministic))


@dataclass(frozen=True)
class Selection:
    """Which epoch is deployed: the last one, or the best in natural plus robust accuracy.

    Robust accuracy is the mean over `attack`: one PGD for each norm that a method trains against. For a
    method without an adversary natural accuracy alone decides.

    `validation` scores on a held-out slice of the training set. `paper-test` scores on the test set, as
    the papers did; every number that comes from it is marked. No epoch with a natural accuracy below
    `gate` is taken (0.88 in the released code).
    """

    use: str = "last"
    attack: PGD | tuple[PGD, ...] | None = None  # not always a tuple: that would change old ids
    gate: float | None = None

    def __post_init__(self) -> None:
        if self.use not in SELECTIONS:
            raise unknown("selection", self.use, SELECTIONS, "a scale or a preset")

    @property
    def attacks(self) -> tuple[PGD, ...]:
        if self.attack is None:
            return ()
        return self.attack if isinstance(self.attack, tuple) else (self.attack,)


@dataclass(frozen=True)
class Watch:
    """What a run measures of its learners: accuracies after each epoch, images after some.

    On held-out training images. `moments` are shares of the run ("75/120"); the epochs that they lie in
    keep adversarial images. `line`: at so many points of the straight line between each two learners it
    measures the accuracy before each redistribution. `losses`: the losses of Theorem 1's step.
    """

    attack: PGD
    examples: int
    moments: tuple[Fraction, ...]
    line: int | None = None
    losses: bool | None = None

    def __post_init__(self) -> None:
        if self.line is not None and self.line < 2:
            raise expected("two points or more on the line of a watch", self.line, "write line: 11")
        wrong = [str(moment) for moment in self.moments if not 0 < moment <= 1]
        if wrong or not self.moments:
            what = "moments of a watch as shares of the run, above 0 and at most 1"
            raise expected(what, ", ".join(wrong) or "none", "write them like 75/120")

    def keeps_images_after(self, epoch: int, epochs: int) -> bool:
        return epoch + 1 in {ceil(moment * epochs) for moment in self.moments}


@dataclass(frozen=True)
class TrainRun:
    """The training of one model. `parents` are the ids of trained runs that it starts from."""

    dataset: str
    network: str
    method: Method
    recipe: Recipe
    selection: Selection = field(default_factory=Selection)
    seed: int = 0
    parents: tuple[str, ...] = ()
    watch: Watch | None = None

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        counts = getattr(self.method, "PARENTS", (0,))
        if len(self.parents) not in counts:
            what = f"{' or '.join(map(str, counts))} parents of {self.method.slug}"
            raise expected(what, len(self.parents), "write parents: [at, at_l2] for two")
        singles = [part for part in components(self.method) if isinstance(part, Single)]
        if len(growing(self.method)) > sum(len(growing(single.objective)) for single in singles):
            what = f"a radius that does not grow for {self.method.slug}, which owns its update"
            raise expected(what, "a threat with a warmup", "name another threat")

    @cached_property
    def id(self) -> str:
        where = f"{self.dataset}-{self.network}-{self.method.slug}-s{self.seed}"
        return f"{where}-{fingerprint(self)}"

    @property
    def processes(self) -> int:
        """How many processes its method starts; most need one."""
        return getattr(self.method, "processes", 1)


@dataclass(frozen=True)
class Judge:
    """How the epochs of a trunk are judged for a run that starts from it."""

    selection: Selection
    inside: bool  # the network inside an `Averaged`, not its average


@dataclass(frozen=True)
class Stretch:
    """Some epochs of a run: from states that others left at one epoch, to its model or to a state.

    One that ends with a state is a trunk; docs/decisions/0017-trunks.md.
    """

    run: TrainRun
    begin: int = 0  # epochs that the owners' states have behind them
    owners: tuple[TrainRun, ...] = ()  # who left them: itself, a run around it, or one per learner
    end: int | None = None  # the epoch of the state that it leaves; None: it leaves a model
    judges: tuple[Judge, ...] = ()

    @classmethod
    def of(cls, work: TrainRun | Stretch) -> Stretch:
        """A run as the stretch of all its epochs."""
        return work if isinstance(work, Stretch) else cls(work)

    @property
    def id(self) -> str:
        return self.run.id if self.end is None else f"{self.run.id}@{self.end}"

    @property
    def last(self) -> int:
        """The number of epochs at its end."""
        return self.run.recipe.epochs if self.end is None else self.end

    @property
    def judge(self) -> Judge:
        """How a run that starts from a trunk wants the trunk's epochs to have been judged."""
        return Judge(self.run.selection, parts(self.run.method)[0] != self.owners[0].method)


def parts(method: Any) -> tuple[Method, ...]:
    """The methods that train without each other at first: itself, or its learners."""
    return getattr(method, "parts", (method,))


def indivisible(run: TrainRun) -> list[str]:
    """The reasons why no batch of a run can be shared by processes; docs/data-parallel.md."""
    parts = [getattr(part, "NEEDS_WHOLE_BATCH", None) for part in components(run.method)]
    parts += ["trains its learners side by side"] if run.processes > 1 else []
    parts += ["is compiled"] if run.recipe.compile else []
    return [reason for reason in parts if reason]


def trained_norms(method: Any) -> list[str]:
    """The norms of all threats that a method trains against, in the order of `ORDERS`."""
    found = {part.norm for part in components(method) if isinstance(part, Threat)}
    return [norm for norm in ORDERS if norm in found]
