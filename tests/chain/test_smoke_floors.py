"""On digits at smoke scale the numbers must make sense: conservative floors, real training."""

import dataclasses
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from conftest import run_of

from harness.evaluation.evaluate import evaluate
from harness.evaluation.records import read_evaluation
from harness.grid.columns import EvalRun
from harness.grid.plan import Plan
from harness.models.networks import load_model
from harness.training.train import train

SLUGS = ["generalist_t", "generalist_d_linf_l2", "generalist_d_nt_linf", "at", "at_l2", "nt"]
COLUMNS = ("NAT", "PGD20_inf", "PGD20_2")


def measure(slug: str, results) -> dict[str, float]:
    torch.set_num_threads(1)
    smoke = Plan.read("smoke")
    run = run_of(smoke, slug)
    train(run, results, torch.device("cpu"))
    # All 500 test images, whatever the scale's budget: the floors below were set for them.
    probes = [smoke.columns.probe(column, "digits") for column in COLUMNS]
    wanted = [dataclasses.replace(probe, examples=500) for probe in probes]
    evaluation = EvalRun(run.id, tuple(wanted))
    evaluate(evaluation, load_model(results, run.id), "", results, torch.device("cpu"))
    records, _ = read_evaluation(results, evaluation)
    found = zip(COLUMNS, wanted, strict=True)
    return {column: 100 * records[probe.id].correct.mean() for column, probe in found}


@pytest.fixture(scope="module")
def accuracy(tmp_path_factory):
    results = tmp_path_factory.mktemp("floors")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return dict(zip(SLUGS, pool.map(measure, SLUGS, [results] * len(SLUGS)), strict=True))


def test_floors(accuracy):
    print(accuracy)
    assert accuracy["nt"]["NAT"] > 95
    assert accuracy["nt"]["PGD20_inf"] < 10
    assert accuracy["at"]["PGD20_inf"] > 50
    assert accuracy["at_l2"]["PGD20_2"] > 60
    slack = 3  # points: n = 500 has an interval of about +-4 on a robust accuracy
    learners = {
        "generalist_d_nt_linf": ("at", "nt"),
        "generalist_d_linf_l2": ("at", "at_l2"),
        "generalist_t": ("at", "nt", "at_l2"),
    }
    for generalist, own in learners.items():
        for column in COLUMNS:
            bounds = [accuracy[learner][column] for learner in own]
            assert min(bounds) - slack <= accuracy[generalist][column] <= max(bounds) + slack
