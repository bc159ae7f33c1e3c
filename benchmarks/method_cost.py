"""A training step of each method, in steps of AT: digits, a tiny network, few attack steps, one
core, late in a run, when every method has left its warm-up. With more attack steps NT and the
half-natural methods cost less relative to AT. RMC's bar does not include the two trained models
that it starts from.

![Step time of each method relative to AT](method_cost.png)
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib
import torch

from benchmarks.timing import Row, in_turn
from harness.grid.plan import Plan
from harness.training.batches import Batches
from harness.training.contracts import Clock
from harness.training.train import make_lab, train

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
ROUNDS = 9
LATE = 0.9  # of the run: every method has left its warm-up


def measure() -> list[Row]:
    torch.set_num_threads(1)
    plan = Plan.read("ci")
    costs = in_at_steps(plan)
    draw(costs, plan.grid["labels"], HERE / "method_cost.png")
    return [Row(plan.grid["labels"][slug], f"{cost:.2f} AT steps") for slug, cost in sorted_by(costs)]


def sorted_by(costs: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(costs.items(), key=lambda item: item[1])


def in_at_steps(plan: Plan) -> dict[str, float]:
    device, slugs = torch.device("cpu"), list(plan.grid["methods"])
    with tempfile.TemporaryDirectory() as folder:
        results, live = Path(folder), {}
        for slug in slugs:
            run = plan.train_run(slug, "cifar10", "wrn32_10", seed=0)
            for parent in run.parents:
                train(plan.run(parent), results, device)
            live[slug] = run.method.start(make_lab(run, results, device))
    batches = Batches(plan.train_run("at", "cifar10", "wrn32_10", 0), device)
    batch = batches.at(batches.order(0), 0, 0)
    clock = Clock(int(LATE * 100), 1, 100, 10)
    times = in_turn({s: lambda t=t: t.step(batch, clock) for s, t in live.items()}, ROUNDS)
    return {slug: times.ratio(slug, "at") for slug in slugs}


def draw(costs: dict[str, float], labels: dict[str, str], path: Path) -> None:
    ordered = [slug for slug, _ in sorted_by(costs)]
    figure, axes = plt.subplots(figsize=(7, 0.27 * len(ordered) + 1), layout="constrained")
    bars = axes.barh(
        [labels[slug] for slug in ordered], [costs[slug] for slug in ordered], color="#0072b2"
    )
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1, color="#d55e00", linewidth=1)
    axes.set_xlabel("time of one training step, AT = 1")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
