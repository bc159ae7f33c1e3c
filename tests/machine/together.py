"""For tests/machine/test_distributed.py, started by torchrun: one process and all of them, in float64.

Both trainings live in this process: the one on whole batches with the team's functions switched off.
"""

import dataclasses
import sys

import torch
from conftest import run_of, weights

from harness.grid.plan import Plan
from harness.machine import distributed
from harness.machine.distributed import _Team
from harness.models.folding import folded
from harness.training.batches import Batches
from harness.training.contracts import Batch, Clock
from harness.training.train import make_lab

BATCH, STEPS = 33, 6  # 33 is 16 and 17: shares that are not equal


def steps(run, size):
    """The reported numbers, the weights, and the largest difference to rank 0's weights."""
    _Team.size, _Team.together = size, size > 1
    lab = make_lab(run, None, device)
    double = dataclasses.replace(lab, new_model=lambda: lab.new_model().double())
    training, batches, said = run.method.start(double), Batches(run, device), []
    for number in range(STEPS):
        clock = Clock(*divmod(number, 2), STEPS // 2, 2)
        batch = batches.at(batches.order(clock.epoch), clock.epoch, clock.step)
        batch = Batch(batch.x.double(), batch.y, batch.index)
        said.append(distributed.batch_mean(training.step(batch, clock)))
    distributed.check_equal(training.state_dict())
    assert folded(training.deployed()) is not None
    return said, weights(training.deployed())


torch.set_num_threads(1)
plan, slugs = Plan.read("ci"), sys.argv[1:]
recipe = {"batch_size": BATCH, "examples": 2 * BATCH}
device = distributed.join("cpu")
for slug in slugs:
    run = run_of(plan, slug)
    run = dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, **recipe))
    (one, alone), (many, beside) = steps(run, 1), steps(run, 2)
    off = max(abs(a[name] - b[name]) for a, b in zip(one, many, strict=True) for name in a)
    if distributed.leads():
        print(f"{slug} {off:.3g} {float((alone - beside).abs().max()):.3g}", flush=True)
_, large = steps(run, 2)
distributed._BUCKET_BYTES = 1  # a gradient more than fits: alone
_, small = steps(run, 2)
if distributed.leads():
    print(f"buckets {float((large - small).abs().max()):.3g}", flush=True)
distributed.leave()
