"""A small table, records of it on disk, and claims about it."""

import copy

import numpy as np

from harness.core import paths
from harness.core.files import write_json
from harness.evaluation.records import Record, read_evaluation, write_records
from harness.evaluation.trust import checks_path, model_checks
from harness.grid.plan import Plan
from harness.papers.claims import judge, parse

ARTEFACT = "cvpr23_table1a"
PLACE = f"{ARTEFACT}/cifar10/resnet18"
METHODS = ["nt", "at", "trades6", "fat"]
N = 1000  # images


def small_plan(plan, **scale):
    """A plan with one small table."""
    grid = copy.deepcopy(plan.grid)
    entry = {**grid["artefacts"][ARTEFACT], "methods": METHODS, "columns": ["NAT", "PGD20"]}
    grid["artefacts"] = {ARTEFACT: entry}
    test = {**plan.scale["test"], "examples": N}
    return Plan(grid, {**plan.scale, "test": test, **scale}, "ci")


def seeded_plan(plan):
    """The same table with three seeds."""
    small = small_plan(plan, seeds=[0, 1, 2])
    grid = copy.deepcopy(small.grid)
    grid["artefacts"][ARTEFACT]["seeds"] = 3
    return Plan(grid, small.scale, "ci")


def record(correct) -> Record:
    correct = np.asarray(correct, bool)
    stage = np.where(correct, -1, 0).astype(np.int8)
    return Record(correct, correct.astype(np.int16), stage, 1, 20, 1, 1)


def store(plan, results, accuracies, n=N, checks=(), shuffled=()):
    """Records on disk; a method's accuracies are those of its columns, one pair per seed.

    The images that a worse model gets right are among those of a better one, unless `shuffled`.
    """
    for cell in plan.artefacts[ARTEFACT].cells:
        if cell.method not in accuracies:
            continue
        given = accuracies[cell.method]
        for seed, run in enumerate(cell.runs):
            pair = given[seed] if isinstance(given, list) else given
            order = np.arange(n)
            if cell.method in shuffled:
                order = np.random.default_rng(1).permutation(n)
            evaluation = plan.evaluations[run]
            records = {
                probe.id: record(order < share * n)
                for probe, share in zip(
                    sorted(evaluation.probes, key=lambda p: p.attack is not None), pair, strict=True
                )
            }
            probes = {probe.id: {"dataset": probe.dataset} for probe in evaluation.probes}
            about = {"checks": list(checks), "probes": probes, "sources": {"digits": "embedded"}}
            write_records(paths.records(results, evaluation.id), records, about)


def claimed(*parts):
    entry = {"id": "one", "claim": "A claim.", "source": "here", "all_of": list(parts)}
    return {"groups": {"others": ["at", "fat"]}, "places": {"here": [PLACE]}, "claims": [entry]}


def reports_of(plan, results):
    """A folder of reports with the checks of every model that has records."""
    for name, artefact in plan.artefacts.items():
        found = {}
        for run in {run for cell in artefact.cells for run in cell.runs}:
            if paths.records(results, plan.evaluations[run].id).exists():
                own = read_evaluation(results, plan.evaluations[run])
                checks = model_checks(plan, artefact, run, own)
                found[run] = {"checks": [check.as_json() for check in checks]}
        if found:
            write_json(checks_path(results / "reports", plan, name), found)
    return results / "reports"


def judged(plan, results, *parts):
    claims = parse(claimed(*parts), plan)
    return judge(plan, claims, results, reports_of(plan, results)).iloc[0]


BEST = {"better": "trades6", "than": "others", "columns": ["NAT"], "in": "here"}
