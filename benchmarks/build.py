"""How much longer a build took than the work in it: wall time over CPU time of its jobs / cores.

`python benchmarks/build.py` in the folder of a build made from scratch in one go. The work is the
CPU time that trainings and evaluations say they took, and that Snakemake measured for the rules that
fetch and draw; the wall time is the longest that a log of Snakemake's tells, unless --wall gives it.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from datetime import timedelta
from pathlib import Path

from harness.records import read_records

FORKED = ("train", "evaluate")  # of these, Snakemake sees a waiting client only
_ELAPSED = re.compile(r"Elapsed time: (?:(\d+) days?, )?(\d+):(\d+):([\d.]+)")


def measured(folder: Path) -> float:
    """Snakemake's own CPU seconds for one rule's jobs; it writes - or NA for the shortest."""
    rows = [
        row for path in folder.glob("*.tsv") for row in csv.DictReader(path.open(), delimiter="\t")
    ]
    return sum(float(row["cpu_time"]) for row in rows if row["cpu_time"] not in ("-", "NA"))


def work(results: Path) -> dict[str, float]:
    """CPU seconds by rule."""
    models = [json.loads(path.read_text()) for path in results.glob("models/*/run.json")]
    records = [read_records(path)[1] for path in results.glob("records/*.npz")]
    found = {
        "train": sum(about["cpu_seconds"] for about in models),
        "evaluate": sum(about["cpu_seconds"] for about in records),
    }
    rules = sorted(path for path in results.glob("benchmarks/*") if path.name not in FORKED)
    return found | {path.name: measured(path) for path in rules}


def wall(logs: Path) -> float:
    found = [_ELAPSED.search(path.read_text()) for path in logs.glob("*.log")]
    times = [tuple(float(part or 0) for part in match.groups()) for match in found if match]
    return max(
        timedelta(days=d, hours=h, minutes=m, seconds=s).total_seconds() for d, h, m, s in times
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--logs", type=Path, default=Path(".snakemake/log"))
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--wall", type=float, help="seconds, if not from the logs")
    options = parser.parse_args()
    spent = work(options.results)
    for rule, seconds in spent.items():
        print(f"{rule:>10} {seconds:8.1f} s of CPU")
    took, total = options.wall or wall(options.logs), sum(spent.values())
    print(
        f"{total:.0f} s of work on {options.cores} cores took {took:.0f} s: "
        f"{took * options.cores / total:.2f} of the least possible"
    )
