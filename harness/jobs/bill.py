"""What a scale's runs will cost: `python -m harness plan --scale paper`. Imports no torch.

Work is counted in passes of single images (harness/attacks/work.py). The passes of a method's training
step and the operations of a network's pass were measured by harness/jobs/meter.py; docs/passes.csv and
docs/operations.csv hold them.

Evaluation is an upper bound: every image is assumed to survive every stage. Not counted: the trust
checks on 100 images, Grad-CAM in training, augmentation, mixing weights, reading and writing.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.attacks.work import Work
from harness.core.config import ROOT
from harness.core.paths import canonical, fingerprint
from harness.data import count
from harness.data.sets import SETS
from harness.grid.columns import Probe
from harness.grid.plan import Plan
from harness.training.contracts import Method
from harness.training.runs import TrainRun

PASSES, OPERATIONS = ROOT / "docs" / "passes.csv", ROOT / "docs" / "operations.csv"
# Fields that change no number of passes: sizes of balls and steps, and everything about the update.
_IRRELEVANT = ("eps", "step", "optim", "average")
_SAMPLE = 1000  # images that a method may use when it is asked for its model
Kind = tuple[str, tuple[int, ...]]  # a network's name; channels, height and width of its images


@dataclass(frozen=True)
class Rate:
    """A method's work: per image of a step, and per image it uses to choose its model."""

    step: Work
    choice: Work
    at_most: bool  # some images may leave an attack early


@dataclass(frozen=True)
class Network:
    """What one image costs in a network: operations of a pass, bytes kept for the backward pass."""

    price: Work
    kept_bytes: float
    weight_bytes: float


@cache
def known_rates() -> Mapping[str, Rate]:
    """Shape of a method -> its rate in docs/passes.csv."""
    rows = [(row[0], [float(n) for n in row[2:]]) for row in _rows(PASSES.read_text())]
    return {key: Rate(Work(*n[:3]), Work(*n[3:6]), bool(n[6])) for key, n in rows}


@cache
def known_networks() -> Mapping[Kind, Network]:
    """Network and image size -> its cost in docs/operations.csv."""
    rows = [(row[0], [float(n) for n in row[1:]]) for row in _rows(OPERATIONS.read_text())]
    return {(key, tuple(map(int, n[:3]))): Network(Work(*n[3:6]), *n[6:]) for key, n in rows}


def _rows(text: str) -> list[list[str]]:
    return list(csv.reader(text.splitlines()))[1:]


def kind(run: TrainRun) -> Kind:
    entry = SETS[run.dataset]
    return run.network, (entry.channels, *entry.size)


def shape(method: Method) -> str:
    """A key: methods of one shape take the same passes, in one process or in several."""

    def discrete(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: discrete(entry) for key, entry in value.items() if key not in _IRRELEVANT}
            return {key: entry for key, entry in kept.items() if entry is not None}
        if isinstance(value, list):
            return tuple(discrete(entry) for entry in value)
        return None if isinstance(value, float) else value

    return fingerprint(discrete(canonical(getattr(method, "serial", method))))


@cache
def of_evaluation(probes: tuple[Probe, ...]) -> Work:
    """The work of a model's probes; those that share a run cost as much as the longest."""
    families: dict[str, Work] = defaultdict(Work)
    for probe in probes:
        work = Work(forward=1)
        if probe.attack:
            work += Work(forward=len(probe.attack.stages))
            work += probe.attack.work(SETS[probe.dataset].classes)
        family = probe.id if probe.heat else probe.family
        families[family] = max(families[family], work * probe.examples, key=lambda w: w.all_forward)
    return sum(families.values(), Work())


def of_training(run: TrainRun, rate: Rate) -> Work:
    """The work of a training, with the selection of its epoch."""
    on_test = run.selection.use == "paper-test"
    examples = count(run.dataset, "train+validation" if on_test else "train")
    work = rate.step * min(examples, run.recipe.examples or examples) * run.recipe.epochs
    if run.selection.use == "last":
        return work + rate.choice * _SAMPLE  # the model is asked for once, at the end
    judged = Work(forward=1)
    for attack in run.selection.attacks:
        judged += Work(forward=1) + attack.work(SETS[run.dataset].classes)
    judged *= count(run.dataset, "test" if on_test else "validation")
    return work + (judged + rate.choice * _SAMPLE) * run.recipe.epochs


def text(
    plan: Plan, rates: Mapping[str, Rate], prices: Mapping[Kind, Work] | None, device: str = ""
) -> str:
    """A table with a line per network and method; without prices (in seconds), passes only."""
    groups: dict[tuple[str, str], list[tuple[Work, Work, Work]]] = defaultdict(list)
    bounds = set()  # methods whose work is an upper bound
    for run in plan.runs.values():
        key, rate = (run.network, run.method.slug), rates[shape(run.method)]
        evaluation = plan.evaluations.get(run.id)
        evaluated = of_evaluation(evaluation.probes) if evaluation else Work()
        price = prices[kind(run)] if prices else Work()
        groups[key].append((of_training(run, rate), evaluated, price))
        bounds |= {key} if rate.at_most else set()

    def total(models: list[tuple[Work, Work, Work]], part: int) -> tuple[Work, float]:
        """Work and hours of all trainings (part 0) or evaluations (part 1)."""
        hours = sum(model[part].at(model[2]) / 3600 for model in models)
        return sum((model[part] for model in models), Work()), hours

    head = f"{'network':<10} {'method':<28} {'models':>6}  {'forward':>8} {'backward':>8}"
    hours = f"  {'train':>9} {'evaluate':>9} {'all models':>11}  (hours a model, hours)"
    lines = [head + (hours if prices else "  (image passes a model)")]
    for (network, method), models in sorted(groups.items()):
        (train, train_hours), (evaluate, test_hours) = total(models, 0), total(models, 1)
        number = len(models)
        both = (train + evaluate) * (1 / number)
        line = f"{network:<10} {method + '*' * ((network, method) in bounds):<28} {number:>6}  "
        line += f"{short(both.all_forward):>8} {short(both.backward):>8}"
        if prices:
            line += f"  {train_hours / number:>9.3g} {test_hours / number:>9.3g}"
            line += f" {train_hours + test_hours:>11.4g}"
        lines.append(line)
    lines.append(f"\n{len(plan.runs)} models, {len(plan.artefacts)} artefacts at scale {plan.name}")
    for part, name in enumerate(("training", "evaluation, at most")):
        work, cost = total([model for models in groups.values() for model in models], part)
        passes = f"{short(work.all_forward)} forward, {short(work.backward)} backward passes"
        lines.append(f"{name}: {passes}" + (f", {cost:,.4g} hours on {device}" if prices else ""))
    if bounds:
        lines.append("* at most: images that an attack has fooled may leave it early")
    return "\n".join(lines)


def short(number: float) -> str:
    """A number with three digits and a letter for its thousands."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"
