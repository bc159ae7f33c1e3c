"""docs/architecture.md's list of the files on the way of one cell is what really runs."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import torch
from conftest import ROOT

from harness.core.config import read_grid, read_scale
from harness.core.paths import read_description
from harness.evaluation.evaluate import evaluate
from harness.grid.plan import Plan
from harness.grid.specs import read_spec
from harness.models.networks import load_model
from harness.reports.tables import write_table
from harness.training.train import train

DOCUMENT = ROOT / "docs" / "architecture.md"
MOST = 37  # two more: an average around any method; a start from what others trained
TABLE = "cvpr23_table1a"


def make_one_cell(folder: Path) -> None:
    """Plan it, train its model, evaluate it, write its table; the grid has no other column."""
    grid = read_grid()
    grid = {**grid, "columns": {"PGD20": grid["columns"]["PGD20"]}}
    entry = {**grid["artefacts"][TABLE], "methods": ["at"], "columns": ["PGD20"]}
    plan = Plan({**grid, "artefacts": {TABLE: entry}}, read_scale("ci"), "ci")
    (run,) = plan.runs
    results, cpu = folder / "results", torch.device("cpu")
    train(read_spec(plan.training_spec(run)), results, cpu)
    weights, model = read_description(results, run)["sha256"], load_model(results, run)
    evaluate(read_spec(plan.evaluation_spec(run)), model, weights, results, cpu, {"seconds": 1.0})
    write_table(plan, TABLE, results, folder / "reports")


def traced(work, *arguments) -> set[str]:
    """The modules of harness/ in which a function runs; importing one is not enough."""
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED:  # not a module or class body
            found.add(code.co_filename)

    sys.setprofile(note)
    try:
        work(*arguments)
    finally:
        sys.setprofile(None)
    inside = [Path(name) for name in found if name.startswith(str(ROOT / "harness"))]
    return {str(path.relative_to(ROOT)) for path in inside}


def listed() -> set[str]:
    section = DOCUMENT.read_text().partition("## Files on the way of one cell")[2]
    return set(re.findall(r"`(harness/[\w/]+\.py)`", section.partition("\n## ")[0]))


def test_the_files_on_the_way_of_one_cell(tmp_path):
    """In a process of its own, where nothing is cached yet."""
    words = [sys.executable, __file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.split())
    assert found == listed()
    assert len(found) <= MOST


if __name__ == "__main__":
    print(*sorted(traced(make_one_cell, Path(sys.argv[1]))), sep="\n")
