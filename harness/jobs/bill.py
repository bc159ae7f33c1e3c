"""What a scale's runs will cost: `generalist-bench plan --scale paper`. Imports no torch.

Work is counted in passes of single images (harness/attacks/work.py). The passes of a method's training
step and the operations of a network's pass were measured by harness/jobs/meter.py; docs/passes.csv and
docs/operations.csv hold them.

Evaluation is an upper bound: every image is assumed to survive every stage. Not counted: the trust
checks on 100 images, Grad-CAM in training, augmentation, mixing weights, reading and writing.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.attacks.work import Work
from harness.core.config import ROOT
from harness.core.paths import canonical, fingerprint
from harness.core.process import lasting
from harness.data import count
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.grid.work import of_evaluation
from harness.training.contracts import Method
from harness.training.runs import Selection, Stretch, TrainRun

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
    rows = {key: [float(n) for n in numbers] for key, _, *numbers in _rows(PASSES)}
    return {key: Rate(Work(*n[:3]), Work(*n[3:6]), bool(n[6])) for key, n in rows.items()}


@cache
def known_networks() -> Mapping[Kind, Network]:
    """Network and image size -> its cost in docs/operations.csv."""
    rows = [(name, [float(n) for n in numbers]) for name, *numbers in _rows(OPERATIONS)]
    return {(name, tuple(map(int, n[:3]))): Network(Work(*n[3:6]), *n[6:]) for name, n in rows}


def _rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines()))[1:]


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


def of_training(work: TrainRun | Stretch, rate: Rate) -> Work:
    """The work of a training, or of a stretch of one, with the selection of its epoch."""
    stretch = Stretch.of(work)
    run, epochs = stretch.run, stretch.last - stretch.begin
    on_test = run.selection.use == "paper-test"
    examples = count(run.dataset, "train+validation" if on_test else "train")
    steps = rate.step * min(examples, run.recipe.examples or examples)
    own = (run.selection,) if stretch.end is None else ()
    selections = [*own, *(judge.selection for judge in stretch.judges)]
    judging = [_judging(run, one, rate) for one in selections if one.use != "last"]
    once = 0 if judging or stretch.end is not None else _SAMPLE  # the model is asked for at the end
    return sum(judging, steps) * epochs + rate.choice * once


def _judging(run: TrainRun, selection: Selection, rate: Rate) -> Work:
    """The work of judging an epoch."""
    judged = Work(forward=1)
    for attack in selection.attacks:
        judged += Work(forward=1) + attack.work(SETS[run.dataset].classes)
    on_test = selection.use == "paper-test"
    return judged * count(run.dataset, "test" if on_test else "validation") + rate.choice * _SAMPLE


def costs(
    plan: Plan, rates: Mapping[str, Rate], prices: Mapping[Kind, Work] | None
) -> dict[str, np.ndarray]:
    """Run or trunk -> a row of its training, one of its evaluation: forward, backward passes, hours.

    The training of a run that starts from a trunk is what is left of it.
    """
    found = {}
    starts = [plan.trunks.stretch(run) for run in plan.runs.values()]
    for stretch in [*starts, *plan.trunks.trunks.values()]:
        run = stretch.run
        probes = plan.evaluations[run.id].probes if stretch.id in plan.evaluations else ()
        price = prices[kind(run)] if prices else Work()
        both = of_training(stretch, rates[shape(run.method)]), of_evaluation(probes)
        rows = [(work.all_forward, work.backward, work.at(price) / 3600) for work in both]
        found[stretch.id] = np.array(rows)
    return found


def text(
    plan: Plan, rates: Mapping[str, Rate], prices: Mapping[Kind, Work] | None, device: str = ""
) -> str:
    """A table with a line per network and method; without prices (in seconds), passes only."""
    groups: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    bounds = set()  # methods whose work is an upper bound
    for name, cost in costs(plan, rates, prices).items():
        run_id, _, end = name.partition("@")
        run = plan.run(run_id)
        key = run.network, f"{run.method.slug}, trunk" if end else run.method.slug
        groups[key].append(cost)
        bounds |= {key} if rates[shape(run.method)].at_most else set()
    head = f"{'network':<10} {'method':<28} {'models':>6}  {'forward':>8} {'backward':>8}"
    times = f"  {'train':>12} {'evaluate':>12} {'all models':>12}"
    lines = [head + (times if prices else "  (image passes a model)")]
    for (network, method), models in sorted(groups.items()):
        train, evaluate = np.mean(models, axis=0)
        forward, backward, all_hours = train + evaluate
        line = f"{network:<10} {method + '*' * ((network, method) in bounds):<28} {len(models):>6}  "
        line += f"{short(forward):>8} {short(backward):>8}"
        if prices:
            each = (train[2], evaluate[2], all_hours * len(models))
            line += "  " + " ".join(f"{lasting(hours):>12}" for hours in each)
        lines.append(line)
    if prices:
        lines.append("\ntrain, evaluate: of one model; all models: both, summed over the models")
        lines[-1] += "\ntrunk: epochs that several models share (docs/decisions/0017-trunks.md)"
    lines.append(f"\n{len(plan.runs)} models, {len(plan.artefacts)} artefacts at scale {plan.name}")
    total = sum((model for models in groups.values() for model in models), np.zeros((2, 3)))
    for name, row in zip(("training", "evaluation, at most"), total, strict=True):
        passes = f"{short(row[0])} forward, {short(row[1])} backward passes"
        lines.append(f"{name}: {passes}" + (f", {lasting(row[2])} on {device}" if prices else ""))
    if prices:
        lines.append(f"in all, at most: {days(total.sum(axis=0)[2], device)}")
    if bounds:
        lines.append("* at most: images that an attack has fooled may leave it early")
    return "\n".join(lines)


def days(hours: float, device: str) -> str:
    """What one device takes, and what four take that are never idle: most runs wait for no other."""
    unit = "CPU" if device.startswith("cpu") else "GPU"
    return f"{number(hours / 24)} {unit}-days, {number(hours / 24 / 4)} days on four {unit}s"


def by_artefact(plan: Plan, cost: Mapping[str, np.ndarray], device: str) -> str:
    """A line per artefact: its hours alone, and what it adds to the artefacts above it.

    An artefact needs the trainings of its runs, their parents and trunks; if it has columns, also the
    evaluations of its runs, with all that any artefact asks of these models: that is one job.
    """
    lines = [f"{f'hours on {device}':<28} {'models':>6} {'alone':>8} {'added':>8}"]
    done: set[tuple[str, int]] = set()
    for name, artefact in plan.artefacts.items():
        trained = with_parents(plan, artefact.runs)
        jobs = [(name, 0) for name in [*trained, *trunks_of(plan, trained)]] + [
            (run, 1) for run in artefact.runs if artefact.columns
        ]
        alone = sum(float(cost[run][job][2]) for run, job in jobs)
        added = sum(float(cost[run][job][2]) for run, job in jobs if (run, job) not in done)
        done |= set(jobs)
        lines.append(f"{name:<28} {len(trained):>6} {number(alone):>8} {number(added):>8}")
    whole = sum(float(own[:, 2].sum()) for own in cost.values())
    return "\n".join(
        [
            *lines,
            f"{'all':<28} {len(plan.runs):>6} {'':>8} {number(whole):>8}",
            "",
            "alone: as the only artefact that is built; added: what no artefact above it needs as well",
            f"all of them, at most (evaluations are upper bounds): {days(whole, device)}",
        ]
    )


def with_parents(plan: Plan, runs: Iterable[str]) -> list[str]:
    """Runs and those that they start from."""
    found = dict.fromkeys(runs)
    for run in list(found):
        found |= dict.fromkeys(with_parents(plan, plan.run(run).parents))
    return list(found)


def trunks_of(plan: Plan, runs: Iterable[str]) -> list[str]:
    """The trunks that runs start from, with those before them."""
    starts = [plan.trunks.starts[run] for run in runs if run in plan.trunks.starts]
    needed = [(owner.id, start.begin) for start in starts for owner in start.owners]
    latest = {run: epoch for run, epoch in sorted(needed)}
    return [own.id for (run, end), own in plan.trunks.trunks.items() if end <= latest.get(run, 0)]


def number(value: float) -> str:
    """A number with three digits or more, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def short(number: float) -> str:
    """A number with three digits and a letter for its thousands."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"
