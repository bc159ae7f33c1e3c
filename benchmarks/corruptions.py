"""How long the generator takes: all 15 main corruptions, 5 severities, N images of 32x32.

    python benchmarks/corruptions.py 10000

Prints seconds per corruption, their sum, and the peak memory. The aim: 10,000 images in under 15
minutes on 2 cores and under 2 GB. The images are noise-free gradients: content hardly matters.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from harness.data.corruptions import MAIN, SEVERITIES, corrupt


def gradients(count: int) -> np.ndarray:
    ramp = np.linspace(0, 255, 32)
    slopes = np.random.default_rng(0).uniform(0, 1, (count, 3, 2, 1, 1))
    x = slopes[:, :, 0] * ramp[:, None] + (1 - slopes[:, :, 0]) * slopes[:, :, 1] * ramp
    return x.astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the corruption generator.")
    parser.add_argument("images", type=int, nargs="?", default=1000)
    x = gradients(parser.parse_args().images)
    total = 0.0
    for name in MAIN:
        began = time.perf_counter()
        for severity in SEVERITIES:
            corrupt(x, name, severity)
        seconds = time.perf_counter() - began
        total += seconds
        print(f"{name:20s} {seconds:7.1f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'all':20s} {total:7.1f} s for {len(x)} images, peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
