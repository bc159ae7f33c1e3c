"""A few real steps of a run, to see what it costs: `python -m harness train --rehearse N`."""

import time
from pathlib import Path

import torch

from harness.core.process import lasting
from harness.machine import distributed
from harness.training.batches import Batches
from harness.training.contracts import Clock
from harness.training.runs import TrainRun
from harness.training.train import make_lab, take_step


def rehearse(run: TrainRun, results: Path, device: torch.device, steps: int) -> None:
    """Take a few real steps of a run and print their cost; write nothing."""
    with run.recipe.arithmetic.applied():
        batches, lab = Batches(run, device), make_lab(run, results, device)
        training, order = run.method.start(lab), batches.order(0)
        for step in range(steps):
            began = time.monotonic()
            here = step % batches.steps_per_epoch
            clock = Clock(0, here, run.recipe.epochs, batches.steps_per_epoch)
            reported = take_step(training, batches, order, clock)
            seconds = time.monotonic() - began
            if distributed.leads():
                values = ", ".join(f"{name} {value:.4g}" for name, value in reported.items())
                print(f"step {step + 1}: {seconds:.2f} s, {values}", flush=True)
        if distributed.leads():
            hours = seconds * run.recipe.epochs * batches.steps_per_epoch / 3600
            print(f"{len(batches.y)} images; at this pace the whole run takes {lasting(hours)}")
