"""Generalist's learners side by side against one after the other, in one run: the ratio of times.

`python benchmarks/parallel.py` takes turns, a step of each per round, so that a noisy machine is noisy
to both; one thread per process, as many cores as learners wanted. It also says whether the weights
are equal at the end. NT + l_inf has little to gain: its NT step is short beside its AT step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch

from harness.contracts import Batch, Clock, Lab
from harness.models import ResNet
from harness.plan import Plan
from harness.weights import tensors

ROUNDS = 8
BATCH, PIXELS, CLASSES = 128, 32, 10
WIDTHS = (16, 32)
METHODS = ("generalist_d_linf_l2", "generalist_d_nt_linf", "generalist_t")
CPU = torch.device("cpu")


def new_model() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ResNet(WIDTHS, 1, 3, CLASSES)


def some_batch() -> Batch:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 3, PIXELS, PIXELS, generator=generator)
    return Batch(x, torch.randint(CLASSES, (BATCH,), generator=generator), torch.arange(BATCH))


def measure(slug: str) -> tuple[float, float, bool]:
    """Seconds of a serial and of a parallel step, and whether both end with the same weights."""
    torch.set_num_threads(1)
    batch = some_batch()
    lab = Lab(
        new_model=new_model,
        parents=(),
        num_classes=CLASSES,
        generator=lambda role: torch.Generator().manual_seed(len(role)),
        device=CPU,
        validation=batch,
        sample=batch,
    )
    method = Plan.read("paper").train_run(slug, "cifar10", "resnet18", seed=0).method
    live = [replace(method, parallel=parallel).start(lab) for parallel in (None, True)]  # type: ignore
    times: list[list[float]] = [[], []]
    for number in range(ROUNDS + 1):
        clock = Clock(number, 0, ROUNDS + 1, 1)
        for training, seconds in zip(live, times, strict=True):
            began = time.perf_counter()
            training.step(batch, clock)
            seconds.append(time.perf_counter() - began)
    serial, parallel = (statistics.median(seconds[1:]) for seconds in times)  # without warm-up
    deployed = [tensors(training.deployed()) for training in live]
    equal = all(torch.equal(*pair) for pair in zip(*deployed, strict=True))
    return serial, parallel, equal


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=METHODS[:2])
    for slug in parser.parse_args().methods:
        serial, parallel, equal = measure(slug)
        print(
            f"{slug}: serial {serial:.2f} s, parallel {parallel:.2f} s a step, {serial / parallel:.2f}x"
            f" faster, weights {'equal' if equal else 'DIFFERENT'}",
            flush=True,
        )
