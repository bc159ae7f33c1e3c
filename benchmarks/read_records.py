"""From the records of 300 models to their numbers: reads synthetic records (11 columns, 10,000 images
each) and computes every accuracy, interval and paired test, one core.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.timing import Row
from harness.core.statistics import mcnemar, wilson
from harness.evaluation.records import Record, read_records, write_records
from harness.grid.columns import EvalRun, Probe

MODELS, COLUMNS, IMAGES = 300, 11, 10_000
PROBES = tuple(Probe("cifar10", IMAGES, None, IMAGES, seed) for seed in range(COLUMNS))
DISTINCT = 20  # files with contents of their own; the others are copies


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for model in range(DISTINCT):
        records = {}
        for probe in PROBES:
            correct = rng.random(IMAGES) < 0.3 + 0.5 * rng.random()
            predicted = rng.integers(10, size=IMAGES, dtype=np.int16)
            broken_by = np.where(correct, -1, 0).astype(np.int8)
            records[probe.id] = Record(correct, predicted, broken_by, 1, 20, 1, 1)
        write_records(folder / f"{model}.npz", records, {})
    for model in range(DISTINCT, MODELS):
        (folder / f"{model}.npz").write_bytes((folder / f"{model % DISTINCT}.npz").read_bytes())


def tabulate(folder: Path) -> int:
    best: dict[str, np.ndarray] = {}
    cells = 0
    for model in range(MODELS):
        records, _ = read_records(folder / f"{model}.npz", EvalRun("", PROBES))
        for column, record in records.items():
            low, high = wilson(int(record.correct.sum()), len(record.correct))
            p = mcnemar(record.correct, best.setdefault(column, record.correct))
            cells += low <= record.correct.mean() <= high and 0 <= p <= 1
    return cells


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
        began = time.perf_counter()
        cells = tabulate(Path(name))
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [Row(f"{cells} cells of {IMAGES} images", f"{seconds:.1f} s, peak {peak:.0f} MB")]
