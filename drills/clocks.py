"""Clocks that jump: files dated in the future, or in 1970.

The harness never reads the time of day; Snakemake compares the times of files. The next start may make
something once more. After it the tables are right, and another start has nothing to do.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import numpy as np

from drills import Attempt, Try, demand
from drills.commands import said, snakemake
from drills.ground import TABLE, Ground
from harness.core.files import write_arrays

_YEAR = 365 * 86400


def known(folder: Path) -> list[Path]:
    """The files that Snakemake compares: models, records, reports."""
    patterns = ("results/models/*/*", "results/records/*.npz", "reports/ci/**/*")
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return sorted(path for path in found if path.is_file())


def some(paths: list[Path], random: Random) -> list[Path]:
    return random.sample(paths, random.randint(1, len(paths)))


def changed(folder: Path, random: Random) -> Path:
    """Change a record and date it 1970."""
    path = random.choice(sorted((folder / "results" / "records").glob("*.npz")))
    arrays = dict(np.load(path))
    name = random.choice([name for name in arrays if name.endswith(".correct")])
    write_arrays(path, {**arrays, name: np.zeros_like(arrays[name])})
    os.utime(path, (0, 0))
    return path


def jumps(ground: Ground) -> Attempt:
    """files dated in the future or in 1970"""

    def attempt(this: Try) -> str:
        ground.copy(this.folder)
        kind = ("future", "1970", "a changed record dated 1970")[this.number % 3]
        if kind == "future":
            later = time.time() + this.random.uniform(1, 10) * _YEAR
            for path in some(known(this.folder), this.random):
                os.utime(path, (later, later))
        elif kind == "1970":
            for path in some(known(this.folder), this.random):
                os.utime(path, (0, 0))
        else:
            changed(this.folder, this.random)
        done = snakemake(cwd=this.folder, grid=ground.grid)
        demand(done.returncode == 0, f"the build failed: {said(done)}")
        if kind == "a changed record dated 1970":
            shown = (this.folder / "reports" / "ci" / "tables" / f"{TABLE}.csv").read_text()
            before = (ground.built / "reports" / "ci" / "tables" / f"{TABLE}.csv").read_text()
            demand(shown != before, "the table is that of the old record")
        else:
            ground.check_tables(this.folder)
        again = snakemake("-n", cwd=this.folder, grid=ground.grid)
        demand("Nothing to be done" in said(again), f"it never settles: {said(again)[-800:]}")
        quiet = "Nothing to be done" in said(done)
        return f"{kind}: {'nothing made again' if quiet else 'made again once'}"

    return attempt
