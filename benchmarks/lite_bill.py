"""The cost that `generalist-bench plan --scale lite` predicts for the runs of lite, and the real cost.

Trainings are compared in seconds of CPU (`results/models/*/run.json`, kept in git): they ran two at a
time beside other work, so wall times are not comparable. The predicted cost of a pass is the fastest of
a calibration of 20 seconds. For evaluations the prediction is an upper bound: broken images leave the
attacks.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.timing import Row
from harness.core import paths
from harness.core.config import ROOT
from harness.core.paths import read_description
from harness.evaluation.records import read_evaluation
from harness.grid.plan import Plan
from harness.jobs.bill import kind, of_evaluation, of_training, shape
from harness.jobs.meter import prices, rates

RESULTS = ROOT / "results"


def measure(results: Path = RESULTS) -> list[Row]:
    plan = Plan.read("lite")
    known, (price_of, _) = rates(plan), prices(plan, "cpu", None)
    rows, billed, taken = [], 0.0, 0.0
    for run in plan.runs.values():
        if not paths.description(results, run.id).exists():
            continue
        price = price_of[kind(run)]
        expected = of_training(run, known[shape(run.method)]).at(price)
        found = read_description(results, run.id)["cpu_seconds"]
        billed, taken = billed + expected, taken + found
        note = f"{found:.0f} s, billed {expected:.0f} s ({100 * (expected / found - 1):+.0f} %)"
        evaluation = plan.evaluations.get(run.id)
        if evaluation and paths.records(results, evaluation.id).exists():
            spent = read_evaluation(results, evaluation)[1]["cpu_seconds"]
            bound = of_evaluation(evaluation.probes).at(price)
            note += f"; evaluation {spent:.0f} s, at most {bound:.0f} s"
        rows.append(Row(f"training of {run.id}", note))
    error = 100 * (billed / taken - 1)
    return [*rows, Row("all trainings", f"{taken:.0f} s, billed {billed:.0f} s ({error:+.0f} %)")]
