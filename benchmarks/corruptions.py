"""The generator of corrupted sets: 15 main corruptions, 5 severities, images of 32x32, one core.

The images are noise-free gradients: content hardly matters. A few are timed and the time is scaled to
10,000.
"""

from __future__ import annotations

import resource
import time

import numpy as np

from benchmarks.timing import Row
from harness.data.corruptions import MAIN, SEVERITIES, corrupt

IMAGES, WHOLE = 200, 10_000
MINUTES = 15


def gradients(count: int) -> np.ndarray:
    ramp = np.linspace(0, 255, 32)
    slopes = np.random.default_rng(0).uniform(0, 1, (count, 3, 2, 1, 1))
    x = slopes[:, :, 0] * ramp[:, None] + (1 - slopes[:, :, 0]) * slopes[:, :, 1] * ramp
    return x.astype(np.uint8)


def measure() -> list[Row]:
    x = gradients(IMAGES)
    seconds = {}
    for name in MAIN:
        began = time.perf_counter()
        for severity in SEVERITIES:
            corrupt(x, name, severity)
        seconds[name] = time.perf_counter() - began
    whole = sum(seconds.values()) * WHOLE / IMAGES
    slowest = max(seconds, key=lambda name: seconds[name])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    share = seconds[slowest] / sum(seconds.values())
    found = f"{whole:.0f} s, {100 * share:.0f} % of it {slowest}; peak here {peak:.0f} MB"
    target = f"<= {MINUTES} minutes"
    return [Row(f"all 75 sets of {WHOLE} images", found, target, whole <= 60 * MINUTES)]
