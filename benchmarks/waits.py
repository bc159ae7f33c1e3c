"""How often the CPU waits for the GPU in a training step: counted on a pretend GPU (tests/device).

A wait stops the CPU from preparing what comes next. Every step needs two: its loss must be finite, and
the result of its attack must lie in its ball. Late in a run, digits, a tiny network, four attack steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.timing import Row
from harness.core.config import ROOT
from harness.core.errors import expected
from harness.grid.plan import Plan
from harness.training.batches import Batches
from harness.training.contracts import Clock
from harness.training.train import make_lab, take_step

METHODS = {"at": "AT", "fat": "FAT", "agr": "AGR"}
OTHERS = ("nt", "trades6", "iat", "part", "at_avg", "msd", "eat", "ramp", "generalist_d_nt_linf")
BEFORE = {"at": 2, "fat": 34, "agr": 42}  # by the same count, at commit d7e81c3


def measure() -> list[Row]:
    device = ROOT / "tests" / "device"
    sys.path.insert(0, str(device))
    from pretend_cuda import LIBRARY, build, lacking

    if why := lacking():
        raise expected("the pretend device", "no way to make it", why)
    own = {LIBRARY: str(build()), "PYTHONPATH": f"{device}:{ROOT}"}
    command = [sys.executable, "-m", "benchmarks.waits"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout)
    rows = []
    for slug, name in METHODS.items():
        operations, waits = found[slug]
        said = f"{waits} in {operations} operations; {BEFORE[slug]} before"
        rows.append(Row(f"waits in a step of {name}", said, "<= 2", waits <= 2))
    others = ", ".join(f"{slug} {found[slug][1]}" for slug in OTHERS)
    return [*rows, Row("of other methods", others)]


def counted_steps() -> dict[str, tuple[int, int]]:
    """Operations and waits of a step, by method."""
    plan, cuda, found = Plan.read("ci"), torch.device("cuda"), {}
    for slug in (*METHODS, *OTHERS):
        run = plan.train_run(slug, "cifar10", "resnet18", seed=0)
        batches = Batches(run, cuda)
        training, order = run.method.start(make_lab(run, Path(), cuda)), batches.order(0)
        for step in range(2):  # the first makes momenta and folded copies
            torch.ops.pretend.reset()
            take_step(training, batches, order, Clock(19, step, 20, batches.steps_per_epoch))
        operations, waits, *_ = torch.ops.pretend.counts()
        found[slug] = (operations, waits)
    return found


if __name__ == "__main__":
    print(json.dumps(counted_steps()))
