"""Run the drills named, or all: `python -m drills [name ...] --times 20`.

The outcomes are kept in drills/measured/; the table of docs/reliability.md is written from them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

from drills import (
    Attempt,
    LostError,
    Try,
    archives,
    clocks,
    damage,
    disk,
    divergence,
    hangs,
    hostile,
    kills,
    labels,
    replaced,
    together,
)
from drills.ground import Ground
from harness.core.config import ROOT
from harness.core.errors import run_command, unknown
from harness.core.files import write_whole
from harness.core.process import provenance

DRILLS: dict[str, Callable[[Ground], Attempt]] = {
    "training": kills.training,
    "evaluation": kills.evaluation,
    "workflow": kills.workflow,
    "damaged_checkpoint": damage.checkpoint,
    "damaged_weights": damage.weights,
    "damaged_description": damage.description,
    "damaged_history": damage.history,
    "damaged_records": damage.record,
    "damaged_shards": damage.shard,
    "damaged_cache": damage.cache,
    "damaged_manifest": damage.manifest,
    "full_disk": disk.full,
    "two_workflows": together.workflows,
    "two_trainings": together.trainings,
    "stopped_learner": hangs.learner,
    "stopped_training": hangs.job,
    "clocks": clocks.jumps,
    "divergence": divergence.diverges,
    "replaced_images": replaced.replaced,
    "hostile_inputs": hostile.inputs,
    "hostile_records": archives.records,
    "hostile_labels": labels.labels,
}
HERE = Path(__file__).parent
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- written by python -m drills -->\n", "<!-- end -->\n"


def measured(name: str) -> Path:
    return HERE / "measured" / f"{name}.json"


def drill(name: str, ground: Ground, times: int, first: int = 0) -> dict[str, Any]:
    """Run one drill several times and count the outcomes."""
    began = time.monotonic()
    attempt, happened, lost = DRILLS[name](ground), Counter[str](), []
    seeds = range(first, first + times)
    for number in seeds:
        folder = ground.folder / f"{name}-{number}"
        folder.mkdir()
        try:
            happened[attempt(Try(number, Random(f"{name}/{number}"), folder))] += 1
        except Exception as error:
            what = str(error) if isinstance(error, LostError) else traceback.format_exc()
            lost.append(f"seed {number}: {what}")
            print(f"  LOST {lost[-1]}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "what": DRILLS[name].__doc__,
        "tried": times,
        "survived": times - len(lost),
        "seeds": [seeds.start, seeds.stop - 1],
        "happened": dict(sorted(happened.items())),
        "lost": lost,
        "seconds": round(time.monotonic() - began),
        "date": date.today().isoformat(),
        "made": provenance(),
    }


def table() -> str:
    rows = [json.loads(measured(n).read_text()) for n in DRILLS if measured(n).exists()]
    lines = ["| drill | times tried | survived | what happened |", "|---|---:|---:|---|"]
    for row in rows:
        happened = "; ".join(f"{count} {what}" for what, count in row["happened"].items())
        survived = row["survived"] if row["survived"] == row["tried"] else f"**{row['survived']}**"
        lines.append(f"| {row['what']} | {row['tried']} | {survived} | {happened} |")
    for where in dict.fromkeys(_where(row) for row in rows):
        lines += ["", where]
    return "\n".join(lines) + "\n"


def _where(row: dict[str, Any]) -> str:
    made = row["made"]
    return (
        f"{made['processor']}, {made['cores']} cores, {made['system']}; commit {made['commit']}; "
        f"{row['date']}; seeds {row['seeds'][0]} to {row['seeds'][1]}."
    )


def rendered(document: str) -> str:
    """The document with the current table between its markers."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Cause failures on purpose, many times.")
    parser.add_argument("names", nargs="*", default=list(DRILLS), help=", ".join(DRILLS))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the first try")
    parser.add_argument("--dry", action="store_true", help="write nothing down")
    options = parser.parse_args()
    for name in options.names:
        if name not in DRILLS:
            raise unknown("drill", name, DRILLS, "drills")
    lost = 0
    with tempfile.TemporaryDirectory(prefix="drills-") as folder:
        ground = Ground(Path(folder))
        for name in options.names:
            print(f"{name} ({DRILLS[name].__doc__})", flush=True)
            found = drill(name, ground, options.times, options.seed)
            lost += len(found["lost"])
            print(f"  {found['survived']} of {found['tried']} in {found['seconds']} s", flush=True)
            print(f"  {found['happened']}", flush=True)
            if not options.dry:
                write_whole(measured(name), json.dumps(found, indent=1) + "\n")
    if not options.dry:
        write_whole(DOCUMENT, rendered(DOCUMENT.read_text()))
    sys.exit(bool(lost))


if __name__ == "__main__":
    run_command(main)
