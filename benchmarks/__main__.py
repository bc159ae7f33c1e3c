"""Measure the parts named, or all, and write benchmarks/README.md from what was measured.

Every part is a module with `measure()` and runs in its own process. Its docstring describes the
method in the README. Its rows are kept in benchmarks/measured/, so one part can be measured without
the others.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.timing import Row
from harness.core.config import ROOT
from harness.core.errors import run_command, unknown
from harness.core.files import write_whole
from harness.core.process import provenance

PARTS = {
    "training": "Training steps",
    "parallel": "Learners side by side",
    "attacks": "PGD against other libraries",
    "strangers": "AutoAttack on a network that is not ours",
    "agreement": "AutoAttack against pyautoattack, image by image",
    "columns": "An evaluation with every column",
    "scaling": "How training time grows",
    "memory": "Memory",
    "kept_memory": "Memory that is kept",
    "waits": "Waiting for the GPU",
    "method_cost": "What a step of each method costs",
    "imagenet_feed": "ImageNet's feed",
    "corruptions": "Corrupted sets",
    "read_records": "From records to numbers",
    "build": "The smoke build of everything",
    "suite": "Where the tests' time goes",
    "lite_bill": "The bill against the runs of lite",
}
HERE = Path(__file__).parent
_HEAD = """# Speed, side by side

Written by `make bench`; do not edit. Both sides of a comparison compute the same mathematics. They
take turns, round after round, in one process unless a part says otherwise. A ratio is the median
over rounds of the ratio within a round: absolute seconds are noise on a shared machine. One part
alone: `python -m benchmarks training`.
"""


def measured(part: str) -> Path:
    return HERE / "measured" / f"{part}.json"


def measure(part: str) -> None:
    began = time.monotonic()
    rows = importlib.import_module(f"benchmarks.{part}").measure()
    seconds = round(time.monotonic() - began)
    content = {"rows": [asdict(row) for row in rows], "seconds": seconds, "made": provenance()}
    write_whole(measured(part), json.dumps(content, indent=1) + "\n")
    for row in rows:
        print(f"  {line(row)}", flush=True)


def render() -> str:
    blocks = [_HEAD]
    for part, title in PARTS.items():
        if measured(part).exists():
            blocks.append(section(part, title, json.loads(measured(part).read_text())))
    return "\n".join(blocks)


def section(part: str, title: str, content: dict[str, Any]) -> str:
    method = ast.get_docstring(ast.parse((HERE / f"{part}.py").read_text()))
    rows = [Row(**row) for row in content["rows"]]
    made = content["made"]
    where = f"{made['processor']}, {made['cores']} cores, torch {made['packages']['torch']}"
    table = ["| what | found | target | met |", "|---|---|---|---|", *map(line, rows)]
    note = f"{where}; commit {made['commit']}; {content['seconds']} s."
    return "\n".join([f"## {title}", "", method or "", "", *table, "", note, ""])


def line(row: Row) -> str:
    met = {True: "yes", False: "**no**", None: ""}[row.met]
    return f"| {row.what} | {row.found} | {row.target} | {met} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure speed, side by side.")
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for part in options.parts:
        if part not in PARTS:
            raise unknown("part", part, PARTS, "benchmarks")
        if options.here:
            measure(part)
            continue
        print(part, flush=True)
        subprocess.run([sys.executable, "-m", "benchmarks", "--here", part], cwd=ROOT, check=True)
    if not options.here:
        write_whole(HERE / "README.md", render())


if __name__ == "__main__":
    run_command(main)
