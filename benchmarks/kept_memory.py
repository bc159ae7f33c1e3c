"""The gain when a process keeps the memory it has freed (`keep_memory` in harness/machine/device.py).

Lite's AT step on batches of 128 images of 32x32, one thread. A process cannot undo this malloc
setting, so two processes take turns. The other parts do not use the setting: there, both sides run
in one process, and plain code would gain too.
"""

from __future__ import annotations

import multiprocessing as mp
from multiprocessing.connection import Connection

import torch

from benchmarks.setting import CLOCK, digits, lab_for
from benchmarks.timing import Row, in_turn
from harness.grid.plan import Plan
from harness.machine.device import set_up

BATCH, ROUNDS = 128, 12


def measure() -> list[Row]:
    fresh = mp.get_context("spawn")  # nothing of this process's memory is inherited
    pipes = {}
    for name, keeps in (("kept", True), ("given back", False)):
        pipes[name], there = fresh.Pipe()
        fresh.Process(target=work, args=(there, keeps), daemon=True).start()
    steps = {name: lambda pipe=pipe: (pipe.send("step"), pipe.recv()) for name, pipe in pipes.items()}
    times = in_turn(steps, ROUNDS)
    for pipe in pipes.values():
        pipe.send(None)
    ratio = times.ratio("given back", "kept")
    return [Row("an AT step with memory kept against memory given back", f"{ratio:.2f}x as fast")]


def work(pipe: Connection, keeps: bool) -> None:
    set_up(1) if keeps else torch.set_num_threads(1)
    method = Plan.read("lite").train_run("at", "cifar10", "resnet18", seed=0).method
    batch = digits(BATCH)
    learner = method.start(lab_for("small", batch))
    while pipe.recv():
        learner.step(batch, CLOCK)
        pipe.send("done")
