"""Generalist's learners side by side against one after the other, in one run: the ratio of times.

`python benchmarks/parallel.py` takes turns, a step of each per round, one thread per process, and
compares the fastest rounds, which others on the machine disturbed least. On cores that are never free,
the ratio of CPU times (the serial step's over the busiest process's) says what free ones would give at
best. It also says whether the weights are equal at the end. NT + l_inf has little to gain: its NT step
is short.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from harness.contracts import Batch, Clock, Lab
from harness.models import ResNet
from harness.plan import Plan
from harness.weights import tensors

BATCH, PIXELS, CLASSES = 128, 32, 10
WIDTHS = (16, 32)
METHODS = ("generalist_d_linf_l2", "generalist_d_nt_linf")
CPU = torch.device("cpu")


def new_model() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ResNet(WIDTHS, 1, 3, CLASSES)


def lab() -> Lab:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 3, PIXELS, PIXELS, generator=generator)
    y = torch.randint(CLASSES, (BATCH,), generator=generator)
    batch = Batch(x, y, torch.arange(BATCH))
    return Lab(
        new_model=new_model,
        parents=(),
        num_classes=CLASSES,
        generator=lambda role: torch.Generator().manual_seed(0),
        device=CPU,
        validation=batch,
        sample=batch,
    )


def cpu_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(slug: str, rounds: int) -> str:
    torch.set_num_threads(1)
    shared = lab()
    method = Plan.read("paper").train_run(slug, "cifar10", "resnet18", seed=0).method
    serial, parallel = (replace(method, parallel=p).start(shared) for p in (None, True))  # type: ignore
    others = [remote.process.pid for remote in parallel.learners[1:]]
    processes = {serial: [os.getpid()], parallel: [os.getpid(), *others]}
    seconds: dict = {serial: [], parallel: []}
    busiest: dict = {serial: [], parallel: []}
    for number in range(rounds + 1):
        clock = Clock(number, 0, rounds + 1, 1)
        for training, pids in processes.items():
            before, began = [cpu_time(pid) for pid in pids], time.perf_counter()
            training.step(shared.sample, clock)
            seconds[training].append(time.perf_counter() - began)
            used = [cpu_time(pid) - own for pid, own in zip(pids, before, strict=True)]
            busiest[training].append(max(used))
    one, many = (min(seconds[training][1:]) for training in processes)  # without the warm-up
    alone, shares = (min(busiest[training][1:]) for training in processes)
    deployed = [tensors(training.deployed()) for training in processes]
    equal = all(torch.equal(*pair) for pair in zip(*deployed, strict=True))
    return (
        f"{slug}: serial {one:.2f} s, parallel {many:.2f} s a step, {one / many:.2f}x faster "
        f"({alone / shares:.2f}x by CPU time), weights {'equal' if equal else 'DIFFERENT'}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for name in options.methods:
        print(measure(name, options.rounds), flush=True)
