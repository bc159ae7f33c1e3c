"""Peak memory of one ResNet-18 adversarial training step, one process per batch size.

The update causes the peak: it keeps every activation, while an attack keeps none for the weights.
So one attack step is enough to measure it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np

from benchmarks.timing import Row
from harness.core.config import ROOT

BATCHES = (16, 32, 64, 128)


def measure() -> list[Row]:
    peaks = {size: _elsewhere(size) for size in BATCHES}
    each, fixed = np.polyfit(list(peaks), list(peaks.values()), 1)
    told = ", ".join(f"{size}: {peak:.0f} MB" for size, peak in peaks.items())
    largest = max(peaks)
    return [
        Row(f"peak memory at batch {largest}", f"{peaks[largest] / 1024:.2f} GB"),
        Row("peak memory by batch size", told),
        Row("grows in proportion", f"{fixed:.0f} MB + {each:.1f} MB per image"),
    ]


def _elsewhere(size: int) -> float:
    """MB. A process does not return memory, so each size has its own process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", str(size)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _step(size: int) -> float:
    from benchmarks.setting import CLOCK, digits, lab_for, paper_method

    at, batch = paper_method("at"), digits(size)
    objective = replace(at.objective, threat=replace(at.objective.threat, steps=1))
    learner = replace(at, objective=objective).start(lab_for("resnet18", batch))
    for some in (digits(2), batch):  # the first makes the momentum
        learner.step(some, CLOCK)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(_step(int(sys.argv[1])))
