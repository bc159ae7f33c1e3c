"""The smoke build of everything from scratch: its wall time against the work in it.

The work is CPU time: what trainings and evaluations record, and what Snakemake measures for the rules
that fetch and draw. The least possible wall time is the work divided by the number of cores. With
`BUILD=folder` an existing build is measured; it must have been made there from scratch and in one go.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import numpy as np

from benchmarks.timing import Row
from harness.core.config import ROOT

FORKED = ("train", "evaluate")  # Snakemake only sees a waiting client of these
CORES = 2
_ELAPSED = re.compile(r"Elapsed time: (?:(\d+) days?, )?(\d+):(\d+):([\d.]+)")


def measure() -> list[Row]:
    if "BUILD" in os.environ:
        rows = build_rows(Path(os.environ["BUILD"]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            snakemake("--cores", str(CORES), folder=folder)
            rows = build_rows(Path(folder))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as empty:
        told = snakemake("-n", "--config", "scale=paper", folder=empty)
    seconds, jobs = time.monotonic() - began, re.findall(r"^total +(\d+)", told, re.MULTILINE)[0]
    what = f"`snakemake -n` of the paper grid, {jobs} jobs"
    return [*rows, Row(what, f"{seconds:.1f} s", "< 15 s", seconds < 15)]


def snakemake(*words: str, folder: str) -> str:
    place = ["--snakefile", str(ROOT / "Snakefile"), "--directory", folder]
    profile = ["--workflow-profile", str(ROOT / "workflow" / "profiles" / "default")]
    command = [sys.executable, "-m", "snakemake", *place, *profile, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def build_rows(folder: Path) -> list[Row]:
    spent, took = work(folder / "results"), wall(folder / ".snakemake" / "log")
    total = sum(spent.values())
    models = len(list(folder.glob("results/models/*/run.json")))
    parts = ", ".join(f"{rule} {seconds:.0f}" for rule, seconds in spent.items() if seconds >= 1)
    ratio = took * CORES / total
    return [
        Row("work in it, seconds of CPU", f"{total:.0f} for {models} models ({parts})"),
        Row(f"wall time on {CORES} cores", f"{took / 60:.1f} min", "< 20 min", took < 1200),
        Row("wall time over the least possible", f"{ratio:.2f}", "<= 1.6", ratio <= 1.6),
    ]


def measured(folder: Path) -> float:
    """Snakemake's own CPU seconds for one rule's jobs; it writes - or NA for the shortest."""
    rows = [row for path in folder.glob("*.tsv") for row in csv.DictReader(path.open(), delimiter="\t")]
    return sum(float(row["cpu_time"]) for row in rows if row["cpu_time"] not in ("-", "NA"))


def work(results: Path) -> dict[str, float]:
    """CPU seconds by rule."""
    models = [json.loads(path.read_text()) for path in results.glob("models/*/run.json")]
    files = [np.load(path)["about"] for path in results.glob("records/*.npz")]
    records = [json.loads(about.tobytes()) for about in files]
    found = {
        "train": sum(about["cpu_seconds"] for about in models),
        "evaluate": sum(about["cpu_seconds"] for about in records),
    }
    rules = sorted(path for path in results.glob("benchmarks/*") if path.name not in FORKED)
    return found | {path.name: measured(path) for path in rules}


def wall(logs: Path) -> float:
    """The longest elapsed time in Snakemake's logs."""
    found = [_ELAPSED.search(path.read_text()) for path in logs.glob("*.log")]
    times = [tuple(float(part or 0) for part in match.groups()) for match in found if match]
    return max(timedelta(days=d, hours=h, minutes=m, seconds=s).total_seconds() for d, h, m, s in times)
