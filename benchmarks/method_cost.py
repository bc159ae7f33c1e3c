"""What a training step of each method costs, in steps of AT, side by side in one run.

`python benchmarks/method_cost.py` prints the table and writes docs/method_cost.{csv,png}. Every method
takes one step per round on the same network and batch, round after round, so that a noisy machine
is noisy to all; the figure is the ratio of medians. RMC's bar includes neither of its two parents.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import matplotlib
import torch

from harness.config import ROOT
from harness.contracts import Clock
from harness.plan import Plan
from harness.train import Batches, make_lab, train

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROUNDS = 15
LATE = 0.9  # of the run: every method has left its warm-up


def measure() -> dict[str, float]:
    torch.set_num_threads(1)
    plan, device = Plan.read("ci"), torch.device("cpu")
    slugs = [slug for slug in plan.grid["methods"]]
    times: dict[str, list[float]] = {slug: [] for slug in slugs}
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
        for _ in range(ROUNDS):
            for slug, training in live.items():
                began = time.perf_counter()
                training.step(batch, clock)
                times[slug].append(time.perf_counter() - began)
    at = statistics.median(times["at"])
    return {slug: statistics.median(seconds) / at for slug, seconds in times.items()}


def draw(costs: dict[str, float], labels: dict[str, str], path: Path) -> None:
    ordered = sorted(costs, key=lambda slug: costs[slug])
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


if __name__ == "__main__":
    found = measure()
    rows = "".join(f"{slug},{cost:.3f}\n" for slug, cost in sorted(found.items()))
    (ROOT / "docs" / "method_cost.csv").write_text("method,step_time_in_at_steps\n" + rows)
    draw(found, Plan.read("ci").grid["labels"], ROOT / "docs" / "method_cost.png")
    print(rows, end="")
