"""How training time grows: log-log slopes over the upper half of each range, one core.

Expected: quadratic in the width of a network (its convolutions), linear in attack steps, learners
and examples. A slope below that comes from costs that do not grow: the update beside the attack,
the start of a run, small convolutions that do not fill the processor.

![Time of training against what makes it grow](scaling.png)
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import torch

from benchmarks.setting import CLASSES, CLOCK, CPU, digits, lab_for, paper_method
from benchmarks.timing import Row, in_turn
from generalist.generalist import Generalist
from harness.attacks.attack import Threat
from harness.grid.plan import Plan
from harness.machine.device import placed
from harness.models.networks import ResNet
from harness.training.learner import Single
from harness.training.train import train

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ROUNDS, BATCH = 3, 32
WIDTHS = (16, 32, 64, 128)
STEPS = (1, 2, 5, 10, 20, 40)
LEARNERS = (2, 3, 4, 6, 8)
EXAMPLES = (64, 128, 256, 512, 1024)
SLACK = 0.15  # a slope this far above the expected one is still noise


def measure() -> list[Row]:
    torch.set_num_threads(1)
    at = paper_method("at")
    threat = at.objective.threat
    with tempfile.TemporaryDirectory() as folder:
        curves = {
            "width": (2, curve({w: of_width(at, w) for w in WIDTHS})),
            "attack steps": (1, curve({n: of_steps(at, threat, n) for n in STEPS})),
            "learners": (1, curve({n: of_learners(at, n) for n in LEARNERS})),
            "examples": (1, curve({n: of_examples(n, Path(folder)) for n in EXAMPLES})),
        }
    draw(curves)
    rows = []
    for what, (expected, times) in curves.items():
        slope = upper_slope(times)
        ranges = f"{min(times)} to {max(times)}"
        found = f"slope {slope:.2f}, expected {expected}"
        rows.append(Row(f"{what}, {ranges}", found, "not above", slope <= expected + SLACK))
    return rows


def curve(contenders: dict[int, Callable[[], object]]) -> dict[int, float]:
    times = in_turn({str(size): run for size, run in contenders.items()}, ROUNDS)
    return {size: times.median(str(size)) for size in contenders}


def of_width(at: Single, width: int) -> Callable[[], object]:
    batch = digits(BATCH, pixels=16)
    network = placed(ResNet((width, 2 * width), 1, 3, CLASSES), CPU)
    learner = at.start(replace(lab_for("tiny", batch), new_model=lambda: network))
    return lambda: learner.step(batch, CLOCK)


def of_steps(at: Single, threat: Threat, steps: int) -> Callable[[], object]:
    batch = digits(BATCH, pixels=16)
    objective = replace(at.objective, threat=replace(threat, steps=steps))  # type: ignore[type-var]
    learner = replace(at, objective=objective).start(lab_for("tiny", batch))
    return lambda: learner.step(batch, CLOCK)


def of_learners(at: Single, count: int) -> Callable[[], object]:
    batch = digits(BATCH, pixels=16)
    shares = (1 / (count - 1),) * (count - 1)
    training = Generalist((at,) * count, shares=shares).start(lab_for("tiny", batch))
    return lambda: training.step(batch, CLOCK)


def of_examples(count: int, results: Path) -> Callable[[], object]:
    """A whole run of some epochs, from reading its data to writing its model."""
    run = Plan.read("smoke").train_run("at", "cifar10", "resnet18", seed=0)
    run = replace(run, recipe=replace(run.recipe, epochs=4, examples=count))
    return lambda: train(run, results, CPU)


def upper_slope(times: dict[int, float]) -> float:
    upper = sorted(times)[len(times) // 2 - 1 :]
    x, y = [math.log(size) for size in upper], [math.log(times[size]) for size in upper]
    return float(np.polyfit(x, y, 1)[0])


def draw(curves: dict[str, tuple[int, dict[int, float]]]) -> None:
    figure, panels = plt.subplots(1, len(curves), figsize=(11, 2.8), layout="constrained")
    for axes, (what, (expected, times)) in zip(panels, curves.items(), strict=True):
        sizes, seconds = np.array(list(times)), np.array(list(times.values()))
        axes.loglog(sizes, seconds, "o-", color="#0072b2", markersize=4)
        guide = seconds[-1] * (sizes / sizes[-1]) ** expected
        axes.loglog(sizes, guide, "--", color="#d55e00", linewidth=1)
        axes.set_title(f"slope {upper_slope(times):.2f}, dashed {expected}", fontsize=9)
        axes.set_xlabel(what)
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.minorticks_off()
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds")
    figure.savefig(HERE / "scaling.png", dpi=110)
    plt.close(figure)
