"""What a CPU budget buys: AT on CIFAR-10, several networks and subsets, the same core time for each.

    python benchmarks/lite_budget.py 240       # seconds of one core for each candidate

Judged on held-out training images, never on test images: natural accuracy and PGD20 at the papers' eps.
The schedule is the papers', stretched over as many epochs as the budget allows.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import torch

from harness.attacks.attack import perturb
from harness.grid.plan import Plan
from harness.models import NETWORKS
from harness.training.batches import Batches
from harness.training.contracts import Clock
from harness.training.epochs import accuracy
from harness.training.train import make_lab

CANDIDATES = [  # widths, examples
    ((16, 32, 64), 10_000),
    ((24, 48, 96), 10_000),
    ((32, 64, 128), 10_000),
    ((24, 48, 96), 20_000),
]


def main(seconds: float) -> None:
    print("| widths | examples | ms a step | epochs | natural | PGD20 |")
    print("|---|---:|---:|---:|---:|---:|")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:  # as two runs of lite do
        for row in pool.map(judged, CANDIDATES, [seconds] * len(CANDIDATES)):
            print(row, flush=True)


def judged(candidate: tuple[tuple[int, ...], int], seconds: float) -> str:
    widths, examples = candidate
    torch.set_num_threads(1)
    plan, device = Plan.read("lite"), torch.device("cpu")
    base = plan.train_run("at", "cifar10", "resnet18", seed=0)
    attack = plan.columns.pgd("cifar10", "linf", 20)
    NETWORKS["candidate"] = ("resnet", {"widths": widths, "blocks": 1, "stem_stride": 2})
    run = replace(base, network="candidate", recipe=replace(base.recipe, examples=examples))
    batches = Batches(run, device)
    step = calibrated(run, batches, device)
    epochs = max(1, round(seconds / step / batches.steps_per_epoch))
    lab = make_lab(run, None, device)  # type: ignore[arg-type]  # AT has no parents to load
    training = run.method.start(lab)
    for epoch in range(epochs):
        order = batches.order(epoch)
        for number in range(batches.steps_per_epoch):
            clock = Clock(epoch, number, epochs, batches.steps_per_epoch)
            training.step(batches.at(order, epoch, number), clock)
    model, held = training.deployed(), lab.validation
    adversarial = perturb(attack, model, held.x, held.y, generator=lab.generator("judge"))
    natural, robust = (100 * accuracy(model, x, held.y) for x in (held.x, adversarial))
    cost = f"{1000 * step:.0f} | {epochs}"
    return f"| {widths} | {examples} | {cost} | {natural:.1f} | {robust:.1f} |"


def calibrated(run, batches: Batches, device: torch.device) -> float:
    """CPU seconds of a step, so that other work on the machine does not count."""
    training, order = run.method.start(make_lab(run, None, device)), batches.order(0)  # type: ignore[arg-type]
    for number in range(6):
        if number == 2:
            began = time.process_time()
        training.step(batches.at(order, 0, number), Clock(0, number, 10, batches.steps_per_epoch))
    return (time.process_time() - began) / 4


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 240.0)
