"""What a column of config/grid.yaml is: the probes it asks of a model, and how their records become a
number. Torch-free."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

from harness.attacks.attack import Staged
from harness.attacks.autoattack import STANDARD, Cascade
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.core.config import merged
from harness.core.errors import expected
from harness.core.paths import fingerprint
from harness.data import frames
from harness.data.corruptions import MAIN, REVISION
from harness.data.corruptions.sequences import FRAMES
from harness.grid.build import Config, build_attack, fraction, look_up, made, registry

PROTOCOLS = ("as_named", "released", "l2")
# How AutoAttack is measured in an artefact: its components' records joined, or one record of a cascade.
COMPONENTWISE, CASCADE = "components", "cascade"
RIGHT_OR_WRONG = ("probe", "all")  # formulas by which an image is right or wrong
BY_IMAGE = (*RIGHT_OR_WRONG, "mean")  # and those with something in between
_FORWARD_BATCHES = 10  # a mere forward pass takes so many attack batches at once


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


@dataclass(frozen=True)
class Formula:
    """A number as a reduction of records.

    One `probe`; `all` of the parts at once; their `mean`. For a probe that is a sequence of frames per
    image: its mean over `frames`, or the share of `flips` of the prediction between frames. `measured`
    is no record: what the run itself cost.
    """

    op: str
    parts: tuple[Any, ...]  # the probe's id, or formulas
    sequence: str | None = None  # for `frames` and `flips`: the name of the data set

    @property
    def probes(self) -> list[str]:
        if self.op == "measured":
            return []
        if isinstance(self.parts[0], str):
            return list(self.parts)
        return [probe for part in self.parts for probe in part.probes]


@dataclass(frozen=True)
class Column:
    """What a column means on one data set, resolved once by the plan."""

    name: str
    formula: Formula
    probes: tuple[Probe, ...] = ()  # the records that the formula reduces
    attack: str | None = None  # its kind; None for a reduction of columns, or what is measured
    balls: tuple[Ball, ...] = ()  # that its attacks live in
    promised: int | None = None  # the steps that the name of a PGD column says
    lower_is_better: bool = False
    times: float = 1  # a factor on its threat's radius and step

    @property
    def norms(self) -> set[str]:
        return {ball.norm for ball in self.balls}

    @property
    def radius(self) -> float:
        """0 without an attack."""
        return self.balls[0].radius if self.balls else 0.0


class Columns:
    """The grid's columns at one scale; data sets go by the name of what is really measured."""

    def __init__(self, grid: Config, scale: Config) -> None:
        self.grid, self.scale = grid, scale

    def examples(self, dataset: str) -> int:
        """How many test images a scale takes of a data set, if it has so many."""
        test = self.scale["test"]
        return test.get("examples_of", {}).get(dataset, test["examples"])

    def column(self, name: str, protocol: str = PROTOCOLS[0]) -> dict[str, Any]:
        entry = dict(look_up("column", name, self.grid["columns"], "config/grid.yaml"))
        own = {key: entry.pop(key, {}) for key in PROTOCOLS}[protocol]
        return merged(entry, own)

    def affords(self, column: str, dataset: str, protocol: str) -> bool:
        """Does the data set have the threat that a column needs?"""
        threat = self.column(column, protocol).get("threat")
        return threat is None or threat in self.grid["datasets"][dataset]["threats"]

    def probe(self, column: str, dataset: str, protocol: str = PROTOCOLS[0]) -> Probe:
        """The record behind a column that is an attack."""
        attack, test = self._attack(self.column(column, protocol), dataset), self.scale["test"]
        return Probe(dataset, self.examples(dataset), attack, test["batch_size"], test.get("seed", 0))

    def _attack(self, entry: Config, dataset: str) -> Staged | None:
        """The attack of a column; the grid may name a registry of its own as `attacks`."""
        attacks = registry(self.grid.get("attacks", "harness.attacks:ATTACKS"))
        known, where = {"none": None, **attacks}, f"a column with attack: {entry['attack']}"
        make = look_up("attack", entry["attack"], known, "config/grid.yaml's columns")
        if make is None:
            return None
        if "threat" not in entry:
            raise expected(f"a value for threat in {where}", "none", "add threat: linf")
        threat = self.pgd(dataset, entry["threat"], 1, entry.get("times", 1))
        ours = ("attack", "threat", "times", "published")
        fields = {name: value for name, value in entry.items() if name not in ours}
        offered = {"ball": threat.ball, "step": threat.step, "autoattack": self.scale["autoattack"]}
        return build_attack(make, offered, fields, where)

    def autoattack(self, names: Iterable[str], protocol: str) -> str | None:
        """How AutoAttack is measured beside these columns: one procedure for all rows of a table.

        It is what survives all four components. If the columns hold each of them, for every AutoAttack
        among them, these records are joined; otherwise a cascade spares the broken examples.
        """
        entries = [self.column(part, protocol) for name in names for part in self._parts(name)]
        there = {(entry.get("attack"), entry.get("threat")) for entry in entries}
        threats = {threat for attack, threat in there if attack == "aa"}
        if not threats:
            return None
        whole = all((part, threat) in there for part in STANDARD for threat in threats)
        return COMPONENTWISE if whole else CASCADE

    def _parts(self, name: str) -> list[str]:
        entry = self.column(name)
        return entry.get("mean", entry.get("all", [name]))

    def resolved(
        self, name: str, dataset: str, protocol: str, autoattack: str | None = None, above: tuple = ()
    ) -> Column:
        """A column on a data set. `autoattack` says how AutoAttack is measured (`autoattack` above)."""
        entry = self.column(name, protocol)
        above = (*above, name)
        if name in above[:-1]:
            raise expected("a column that is not made of itself", " of ".join(above), "name another")
        for op in ("all", "mean"):
            if op in entry:
                parts = [self.resolved(n, dataset, protocol, autoattack, above) for n in entry[op]]
                for part in parts:
                    if part.formula.op not in (RIGHT_OR_WRONG if op == "all" else BY_IMAGE):
                        raise expected(f"columns with their {op} for {name}", part.name, "change it")
                formula = Formula(op, tuple(part.formula for part in parts))
                probes = tuple(probe for part in parts for probe in part.probes)
                balls = dict.fromkeys(ball for part in parts for ball in part.balls)
                return Column(name, formula, probes, balls=tuple(balls))
        if "measured" in entry:
            return Column(name, Formula("measured", (entry["measured"],)), lower_is_better=True)
        if "corrupted" in entry:
            return self._corrupted(name, entry, dataset)
        probe = self.probe(name, dataset, protocol)
        probes, formula = (probe,), Formula("probe", (probe.id,))
        if isinstance(probe.attack, Cascade) and autoattack == COMPONENTWISE:
            probes = tuple(replace(probe, attack=one) for one in probe.attack.components)
            formula = Formula("all", tuple(Formula("probe", (one.id,)) for one in probes))
        stages = probe.attack.stages if probe.attack else ()
        balls = dict.fromkeys(ball for stage in stages for ball in stage.balls)
        promised = self.column(name)["steps"] if entry["attack"] == "pgd" else None
        times = {"times": entry.get("times", 1)}
        return Column(name, formula, probes, entry["attack"], tuple(balls), promised, **times)

    def attacks(self, dataset: str, protocol: str, autoattack: str | None) -> tuple[Column, ...]:
        """Every column that is one attack, or none; some are two names of one record."""
        return tuple(
            self.resolved(name, dataset, protocol, autoattack)
            for name in self.grid["columns"]
            if "attack" in self.column(name) and self.affords(name, dataset, protocol)
        )

    def _corrupted(self, name: str, entry: Config, dataset: str) -> Column:
        """A mean over corrupted versions of the test images, or over sequences of them."""
        examples, size = self.examples(dataset), self.scale["test"]["batch_size"] * _FORWARD_BATCHES
        if entry["corrupted"] == "c":
            op, pairs = "probe", product(MAIN, entry["severities"])
            sets = [f"{dataset}-c/{corruption}/{severity}" for corruption, severity in pairs]
        else:
            op = "flips" if entry.get("flips") else "frames"
            sets = [f"{dataset}-p/{sequence}" for sequence in FRAMES]
        probes, parts = [], []
        for one in sets:
            probe = Probe(one, examples * frames(one), None, size, corruptions=REVISION)
            probes.append(probe)
            parts.append(Formula(op, (probe.id,), None if op == "probe" else one))
        formula, flips = Formula("mean", tuple(parts)), op == "flips"
        return Column(name, formula, tuple(probes), lower_is_better=flips)

    def pgd(self, dataset: str, threat: str, steps: int, times: float = 1) -> PGD:
        threats = self.grid["datasets"][dataset]["threats"]
        entry = look_up("threat", threat, threats, f"data set {dataset}")
        where, factor = f"{dataset}'s {threat}, times {times}", Fraction(str(times))
        sizes = (fraction(entry.get(key), f"{where}, {key}") for key in ("eps", "test_step"))
        eps, step = (factor * size for size in sizes)
        ball = made(Ball, {"norm": entry["norm"], "eps": eps}, where)
        return made(PGD, {"ball": ball, "step": step, "steps": steps}, where)
