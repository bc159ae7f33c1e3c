"""The bill before anyone pays it: `python -m harness plan --scale paper`. Torch-free.

Work is counted in passes of single images: looks (forward only), climbs (gradient up to the image: an
attack's step) and learns (gradient up to the weights). What a training step of a method takes, and how
long a pass of each network lasts, is measured (harness/jobs/meter.py); the measured passes are kept in
docs/passes.csv, which is all that --no-calibration needs.

Evaluation is an upper bound: every image is taken to survive every stage. Left out: the trust checks on
100 images, Grad-CAM in training, augmentation, mixing weights, reading and writing.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.attacks.attack import Attack
from harness.attacks.autoattack import Component
from harness.attacks.pgd import PGD
from harness.core.config import ROOT
from harness.core.errors import UserError
from harness.core.identity import canonical, fingerprint
from harness.data import count
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.grid.probes import EvalRun
from harness.training.contracts import Method
from harness.training.runs import TrainRun

MEASURED = ROOT / "docs" / "passes.csv"
# What changes no number of passes: sizes of balls and steps, and everything about the update.
_BESIDE = ("eps", "step", "optim", "average")
_SAMPLE = 1000  # images that a method may look at when it is asked for its model


@dataclass(frozen=True)
class Work:
    """Passes of single images; as a price: what one of each kind costs."""

    looks: float = 0.0
    climbs: float = 0.0
    learns: float = 0.0

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.looks, self.climbs, self.learns

    @property
    def forward(self) -> float:
        return sum(self.parts)

    @property
    def backward(self) -> float:
        return self.climbs + self.learns

    def __add__(self, other: Work) -> Work:
        return Work(*(one + two for one, two in zip(self.parts, other.parts, strict=True)))

    def __mul__(self, times: float) -> Work:
        return Work(*(times * part for part in self.parts))

    def at(self, price: Work) -> float:
        return sum(one * each for one, each in zip(self.parts, price.parts, strict=True))


@dataclass(frozen=True)
class Rate:
    """A method's work: per image of a step, and per image it looks at to choose its model."""

    step: Work
    choice: Work
    at_most: bool  # some images may leave an attack early


def shape(method: Method) -> str:
    """Methods of one shape take the same passes."""

    def discrete(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: discrete(entry) for key, entry in value.items() if key not in _BESIDE}
            return {key: entry for key, entry in kept.items() if entry is not None}
        if isinstance(value, list):
            return tuple(discrete(entry) for entry in value)
        return None if isinstance(value, float) else value

    return fingerprint(discrete(canonical(serial(method))))


def serial(method: Method) -> Method:
    """A method that runs in several processes does the same work in one."""
    return getattr(method, "serial", method)


def of_attack(attack: Attack, classes: int) -> Work:
    """Per image, by the attack's own fields; AutoAttack's for l_inf and l_2, less some ten looks."""
    if isinstance(attack, PGD):
        return Work(climbs=attack.steps)
    assert isinstance(attack, Component), attack
    targets = min(attack.targets, classes - 1)
    return {
        "apgd-ce": Work(climbs=attack.steps + 1),
        "apgd-dlr": Work(climbs=attack.steps + 1),
        "apgd-t": Work(climbs=targets * (attack.steps + 1)),
        "fab-t": Work(looks=targets * attack.steps, climbs=targets * attack.steps),
        "square": Work(looks=attack.queries),
    }[attack.name]


def of_evaluation(evaluation: EvalRun) -> Work:
    """PGDs that differ in their steps alone are one run of the longest."""
    longest: dict[str, Any] = {}
    for probe in evaluation.probes:
        attack = probe.attack
        alone = replace(attack, steps=1) if isinstance(attack, PGD) else attack
        family = replace(probe, attack=alone).id
        known = longest.setdefault(family, probe)
        if isinstance(attack, PGD) and attack.steps > known.attack.steps:
            longest[family] = probe
    total = Work()
    for probe in longest.values():
        classes = SETS[probe.dataset.partition("/")[0].rpartition("-")[0] or probe.dataset].classes
        stages = probe.attack.stages if probe.attack else ()
        looks = Work(looks=1 + len(stages))
        total += sum((of_attack(stage, classes) for stage in stages), looks) * probe.examples
    return total


def of_training(run: TrainRun, rate: Rate) -> Work:
    on_test = run.selection.use == "paper-test"
    examples = count(run.dataset, "train+validation" if on_test else "train")
    work = rate.step * min(examples, run.recipe.examples or examples) * run.recipe.epochs
    if run.selection.use == "last":
        return work + rate.choice * _SAMPLE  # the model is asked for once, at the end
    judges = count(run.dataset, "test" if on_test else "validation")
    attacks = run.selection.attacks
    judged = Work(looks=1 + len(attacks), climbs=sum(own.steps for own in attacks)) * judges
    return work + (judged + rate.choice * _SAMPLE) * run.recipe.epochs


def write_rates(rates: Mapping[str, tuple[str, Rate]]) -> None:
    """Measured rates, by shape, with the slug of a method that has it."""
    kinds = list(asdict(Work()))
    with MEASURED.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        choice = [f"choice_{kind}" for kind in kinds]
        rows.writerow(["shape", "method", *kinds, *choice, "at_most"])
        for key, (slug, rate) in sorted(rates.items(), key=lambda item: (item[1][0], item[0])):
            numbers = [f"{part:.6g}" for part in (*rate.step.parts, *rate.choice.parts)]
            rows.writerow([key, slug, *numbers, int(rate.at_most)])


def read_rates() -> dict[str, Rate]:
    with MEASURED.open() as file:
        return {
            key: Rate(
                Work(*map(float, numbers[:3])), Work(*map(float, numbers[3:6])), numbers[6] == "1"
            )
            for key, _, *numbers in list(csv.reader(file))[1:]
        }


@dataclass
class Row:
    """All models of one method and network."""

    models: int = 0
    train: Work = Work()
    evaluate: Work = Work()
    train_cost: float = 0.0
    evaluate_cost: float = 0.0
    at_most: bool = False


def rows(
    plan: Plan, rates: Mapping[str, Rate], prices: Mapping[tuple[str, str], Work] | None
) -> dict[tuple[str, str], Row]:
    """(network, method) -> its row; costs in hours, if prices are in seconds."""
    found: dict[tuple[str, str], Row] = defaultdict(Row)
    for run in plan.runs.values():
        rate = rates.get(shape(run.method))
        if rate is None:
            raise UserError(
                f"expected the passes of {run.method.slug} in {MEASURED.name}, found none; leave "
                "out --no-calibration to measure them, or write them with python -m harness meter."
            )
        row = found[run.network, run.method.slug]
        trained, evaluation = of_training(run, rate), plan.evaluations.get(run.id)
        evaluated = of_evaluation(evaluation) if evaluation else Work()
        row.models += 1
        row.train += trained
        row.evaluate += evaluated
        row.at_most |= rate.at_most
        if prices is not None:
            price = prices[run.network, run.dataset]
            row.train_cost += trained.at(price) / 3600
            row.evaluate_cost += evaluated.at(price) / 3600
    return dict(found)


def text(plan: Plan, found: Mapping[tuple[str, str], Row], device: str | None) -> str:
    """The bill as a table, a line per network and method; without a device, passes only."""
    head = f"{'network':<10} {'method':<28} {'models':>6}  {'forward':>8} {'backward':>8}"
    hours = f"  {'train':>9} {'evaluate':>9} {'all models':>11}"
    lines = [head + (f"{hours}  (hours a model, hours)" if device else "  (image passes a model)")]
    for (network, method), row in sorted(found.items()):
        both = (row.train + row.evaluate) * (1 / row.models)
        mark = "*" if row.at_most else ""
        line = f"{network:<10} {method + mark:<28} {row.models:>6}  "
        line += f"{short(both.forward):>8} {short(both.backward):>8}"
        if device:
            train, evaluate = row.train_cost / row.models, row.evaluate_cost / row.models
            line += f"  {train:>9.3g} {evaluate:>9.3g} {row.train_cost + row.evaluate_cost:>11.4g}"
        lines.append(line)
    lines.append(f"\n{len(plan.runs)} models, {len(plan.artefacts)} artefacts at scale {plan.name}")
    everything = found.values()
    for name, work, cost in (
        ("training", [row.train for row in everything], sum(row.train_cost for row in everything)),
        (
            "evaluation, at most",
            [row.evaluate for row in everything],
            sum(row.evaluate_cost for row in everything),
        ),
    ):
        total = sum(work, Work())
        line = f"{name}: {short(total.forward)} forward, {short(total.backward)} backward passes"
        lines.append(line + (f", {cost:,.4g} hours on {device}" if device else ""))
    if any(row.at_most for row in found.values()):
        lines.append("* at most: images that an attack has fooled may leave it early")
    return "\n".join(lines)


def short(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"
