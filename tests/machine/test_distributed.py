"""Two processes with half a batch each: one process with the whole batch is the oracle."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
import yaml
from conftest import ROOT, run_of, weights
from test_parallel import descendants
from test_stopping import begin, outcome, stop
from test_zygote import wait_until

from harness.core import paths
from harness.core.config import read_grid
from harness.core.errors import UserError
from harness.core.process import CODE
from harness.grid.plan import Plan
from harness.models.networks import load_model
from harness.training.runs import whole_batch
from harness.training.train import train

METHODS = ["at", "generalist_d_nt_linf"]
REFUSED = {"eat", "eat_finetuned", "eat_linf_l2", "fat", "iat", "ramp", "rmc"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def grid(tmp_path_factory) -> Path:
    content = read_grid()
    content["recipe"]["data_parallel"] = 2
    table = content["artefacts"]["cvpr23_table1a"]
    content["artefacts"] = {"cvpr23_table1a": {**table, "methods": METHODS}}
    path = tmp_path_factory.mktemp("grid") / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def whole(plan, grid, tmp_path_factory) -> tuple[Path, dict]:
    """Undisturbed runs: in one process, and in two."""
    folder, shared = tmp_path_factory.mktemp("whole"), Plan.read("ci", grid)
    for slug in METHODS:
        train(run_of(plan, slug), folder, CPU)
        process = begin(*words(grid, run_of(shared, slug), folder))
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    return folder, {slug: run_of(shared, slug) for slug in METHODS}


def words(grid, run, results) -> list[str]:
    known = ["--scale", "ci", "--grid", str(grid), "--results", str(results), "--device", "cpu"]
    return ["harness", "train", *known, "--id", run.id]


def test_step_by_step_they_compute_the_same_up_to_the_order_of_sums():
    """In float64, with slices of 16 and 17 images: attacks with a random start, BatchNorm while
    crafting, losses of two forward passes, a gradient that is taken apart, several learners."""
    slugs = ["nt", "at", "trades6", "fast_at", "score_a", "at_sat", "agr", "part", "generalist_t"]
    slugs += ["msd@official"]  # a draw for each step of an attack, the same in all processes
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, str(ROOT / "tests" / "machine" / "together.py"), *slugs],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    assert [slug for slug, *_ in found] == slugs
    for slug, reported, learned in found:
        assert float(reported) < 1e-12, slug
        assert float(learned) < 1e-12, slug


@pytest.mark.parametrize("slug", METHODS)
def test_the_same_loss_curve(plan, whole, slug):
    folder, shared = whole
    one, two = run_of(plan, slug), shared[slug]
    assert one.id != two.id
    assert (one.processes, two.processes) == (1, 2)
    models = [load_model(folder, run.id) for run in (one, two)]
    assert list(models[0].state_dict()) == list(models[1].state_dict())
    alone, together = (weights(model) for model in models)
    print(f"{slug}: weights differ by {float((alone - together).norm() / alone.norm()):.2g}")
    assert (alone - together).norm() < 0.01 * alone.norm()
    curves = [pandas.read_csv(paths.history(folder, run.id)) for run in (one, two)]
    assert list(curves[0]) == list(curves[1])
    # Float32, and an attack turns a last bit into a sign: the sharp test is the one in float64.
    one, two = (curve.to_numpy() for curve in curves)
    print(f"{slug}: curves differ by {np.nanmax(np.abs(one - two), axis=1)}, epoch by epoch")
    assert np.allclose(one[0], two[0], rtol=1e-4, atol=1e-6, equal_nan=True)
    assert np.allclose(one, two, rtol=2e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    ("slug", "targets"),
    [("at", ("launcher", "everyone", "one")), ("generalist_d_nt_linf", ("everyone",))],
)
def test_stopped_at_random_moments_they_end_with_the_same_bits(whole, grid, slug, targets, tmp_path):
    """SIGTERM goes to the launcher, to everyone, or to one process; all stop after the same step."""
    folder, shared = whole
    run, draw, stops = shared[slug], random.Random(slug), 0
    checkpoint = paths.checkpoint(tmp_path, run.id)
    for target in targets:
        process = begin(*words(grid, run, tmp_path))
        if checkpoint.exists():
            assert process.stdout.readline().startswith("continuing")
            time.sleep(draw.uniform(0, 0.1))
        else:
            wait_until(checkpoint.exists, 120)
        if target == "launcher":
            process.terminate()
        elif target == "everyone":
            stop(process, [])
        else:
            os.kill(draw.choice(workers(process.pid)), signal.SIGTERM)
        _, said = process.communicate(timeout=120)
        if process.returncode == 0:  # it was done already
            break
        assert process.returncode == CODE, said
        assert said.count("error: expected to come to the end, found SIGTERM after epoch") == 1
        assert "Traceback" not in said
        stops += 1
    else:
        process = begin(*words(grid, run, tmp_path))
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    assert stops
    assert outcome(tmp_path, run) == outcome(folder, run)
    assert not checkpoint.exists()
    print(f"{slug}: {stops} stops")


def workers(pid: int) -> list[int]:
    found = []
    for one in descendants(pid):
        said = Path(f"/proc/{one}/cmdline").read_text()
        if "harness\0train" in said:
            found.append(one)
    return found


def test_torchrun_may_also_be_called_by_hand(whole, grid, tmp_path):
    folder, shared = whole
    run = shared["at"]
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    process = begin(*torchrun, *words(grid, run, tmp_path))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert outcome(tmp_path, run) == outcome(folder, run)


def test_another_number_of_processes_is_refused(plan, grid, tmp_path):
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    process = begin(*torchrun, *words(ROOT / "config" / "grid.yaml", run_of(plan, "at"), tmp_path))
    _, said = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "expected 1 processes, as the recipe's data_parallel says, found 2" in said


def test_a_rank_that_is_killed_ends_them_all(whole, grid, tmp_path):
    run = whole[1]["at"]
    process = begin(*words(grid, run, tmp_path), "--rehearse", "100000")
    assert "step 1" in process.stdout.readline()
    others = descendants(process.pid)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode not in (0, CODE)
    assert "expected all 2 processes to go on, found the end of one" in said
    assert not [pid for pid in others if Path(f"/proc/{pid}").exists()]


def changed(run, **changes):
    return dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, **changes))


def test_what_cannot_be_sliced_is_refused(plan):
    runs = {slug: run_of(plan, slug) for slug in read_grid()["methods"]}
    assert {slug for slug, run in runs.items() if whole_batch(run.method)} == REFUSED
    with pytest.raises(
        UserError, match="found ramp, which averages over the images that are right; take"
    ):
        changed(runs["ramp"], data_parallel=2)
    with pytest.raises(UserError, match="learners side by side or data_parallel, found both"):
        changed(runs["generalist_d_nt_linf_parallel"], data_parallel=2)
    with pytest.raises(UserError, match="2 processes or more, without compile"):
        changed(runs["at"], data_parallel=2, compile=True)
    assert changed(runs["at"], data_parallel=4).processes == 4
