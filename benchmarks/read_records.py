"""How long it takes to turn the records of 300 models into a table, and how much memory.

`python benchmarks/read_records.py` writes made-up records (300 models, 11 columns, 10,000 images each)
into a temporary folder, then reads them and computes every accuracy, interval and paired test.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from harness.records import Record, read_records, write_records
from harness.statistics import mcnemar, wilson

MODELS, COLUMNS, IMAGES = 300, 11, 10_000


def make(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for model in range(MODELS):
        records = {}
        for column in range(COLUMNS):
            correct = rng.random(IMAGES) < 0.3 + 0.5 * rng.random()
            predicted = rng.integers(10, size=IMAGES, dtype=np.int16)
            broken_by = np.where(correct, -1, 0).astype(np.int8)
            records[f"probe{column}"] = Record(correct, predicted, broken_by, 1, 20, 1, 1)
        write_records(folder / f"{model}.npz", records, {})


def tabulate(folder: Path) -> int:
    best: dict[str, np.ndarray] = {}
    cells = 0
    for model in range(MODELS):
        records, _ = read_records(folder / f"{model}.npz")
        for column, record in records.items():
            low, high = wilson(int(record.correct.sum()), len(record.correct))
            p = mcnemar(record.correct, best.setdefault(column, record.correct))
            cells += low <= record.correct.mean() <= high and 0 <= p <= 1
    return cells


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        make(Path(name))
        began = time.perf_counter()
        count = tabulate(Path(name))
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} cells of {IMAGES} images in {seconds:.1f} s, peak memory {peak:.0f} MB")
