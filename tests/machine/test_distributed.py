"""Two processes with half a batch each: one process with the whole batch is the oracle."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
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
from harness.core.process import CODE
from harness.grid.plan import Plan
from harness.jobs.resources import Machine
from harness.machine import distributed, launch
from harness.machine.device import placed
from harness.machine.synchronized import synchronize
from harness.models.networks import load_model, new_model
from harness.training.runs import indivisible
from harness.training.train import train

METHODS = ["at", "generalist_d_nt_linf"]
REFUSED = {"eat", "eat_finetuned", "eat_linf_l2", "fat", "iat", "ramp", "rmc"}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def grid(tmp_path_factory) -> Path:
    content = read_grid()
    content["datasets"]["digits"]["data_parallel"] = 2
    table = content["artefacts"]["cvpr23_table1a"]
    content["artefacts"] = {"cvpr23_table1a": {**table, "methods": METHODS}}
    path = tmp_path_factory.mktemp("grid") / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def whole(plan, grid, tmp_path_factory) -> tuple[Path, Path]:
    """Undisturbed runs: in one process, and in two."""
    alone, together = tmp_path_factory.mktemp("alone"), tmp_path_factory.mktemp("together")
    for slug in METHODS:
        train(run_of(plan, slug), alone, CPU)
        process = begin(*words(grid, run_of(plan, slug), together))
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    return alone, together


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
    *found, buckets = [line.split() for line in done.stdout.splitlines()]
    assert buckets == ["buckets", "0"]  # how many gradients are summed at once changes no bit
    assert [slug for slug, *_ in found] == slugs
    for slug, reported, learned in found:
        assert float(reported) < 1e-12, slug
        assert float(learned) < 1e-12, slug


@pytest.mark.parametrize("slug", METHODS)
def test_the_same_loss_curve(plan, whole, slug):
    run = run_of(plan, slug)
    abouts = [paths.read_description(folder, run.id) for folder in whole]
    assert [about["processes"] for about in abouts] == [1, 2]
    models = [load_model(folder, run.id) for folder in whole]
    assert list(models[0].state_dict()) == list(models[1].state_dict())
    alone, together = (weights(model) for model in models)
    print(f"{slug}: weights differ by {float((alone - together).norm() / alone.norm()):.2g}")
    assert 0 < (alone - together).norm() < 0.01 * alone.norm()
    curves = [pandas.read_csv(paths.history(folder, run.id)) for folder in whole]
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
def test_stopped_at_random_moments_they_end_with_the_same_bits(
    plan, whole, grid, slug, targets, tmp_path
):
    """SIGTERM goes to the launcher, to everyone, or to one process; all stop after the same step."""
    run, draw, stops = run_of(plan, slug), random.Random(slug), 0
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
    assert outcome(tmp_path, run) == outcome(whole[1], run)
    assert not checkpoint.exists()
    print(f"{slug}: {stops} stops")


def workers(pid: int) -> list[int]:
    found = []
    for one in descendants(pid):
        said = Path(f"/proc/{one}/cmdline").read_text()
        if "harness\0train" in said:
            found.append(one)
    return found


TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


def test_torchrun_may_also_be_called_by_hand(plan, whole, tmp_path):
    """It says how many processes there are, whatever the grid says."""
    run = run_of(plan, "at")
    process = begin(*TORCHRUN, *words(ROOT / "config" / "grid.yaml", run, tmp_path))
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert outcome(tmp_path, run) == outcome(whole[1], run)


@pytest.mark.parametrize("start", [TORCHRUN, []])
def test_a_run_that_cannot_be_shared_is_refused(plan, tmp_path, start):
    run = run_of(plan, "fat")
    process = begin(
        *start, *words(ROOT / "config" / "grid.yaml", run, tmp_path), "--data-parallel", "2"
    )
    _, said = process.communicate(timeout=100)
    assert process.returncode not in (0, CODE)
    assert f"expected a run whose batches 2 processes can share, found {run.id}, which" in said
    assert not paths.checkpoint(tmp_path, run.id).exists()


def test_a_rank_that_is_killed_ends_them_all(plan, grid, tmp_path):
    run = run_of(plan, "at")
    process = begin(*words(grid, run, tmp_path), "--rehearse", "100000")
    assert "step 1" in process.stdout.readline()
    others = descendants(process.pid)
    os.kill(workers(process.pid)[-1], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode not in (0, CODE)
    assert "expected all 2 processes to go on, found the end of one" in said
    assert not [pid for pid in others if Path(f"/proc/{pid}").exists()]


def test_what_cannot_be_shared_is_trained_in_one_process(grid):
    plan = Plan.read("ci", grid)
    runs = {slug: run_of(plan, slug) for slug in read_grid()["methods"]}
    alone = {slug for slug, run in runs.items() if plan.data_parallel(run.id) == 1}
    averaged = {f"{slug}_averaged" for slug in REFUSED}.intersection(runs)
    estimated = {slug for slug in runs if slug.startswith("statistics_")}
    assert alone == {*REFUSED, *averaged, *estimated, "generalist_d_nt_linf_parallel"}
    assert indivisible(runs["ramp"]) == ["averages over the images that are right"]
    compiled = dataclasses.replace(runs["at"].recipe, compile=True)
    assert indivisible(dataclasses.replace(runs["at"], recipe=compiled)) == ["is compiled"]
    assert runs["at"].id == run_of(Plan.read("ci"), "at").id  # it says nothing of processes
    assert Machine("cuda").train(plan, runs["at"].id).gpus == 2


@pytest.mark.parametrize(("device", "gpus", "found"), [("auto", 2, 2), ("cuda", 1, 1), ("cpu", 8, 4)])
def test_no_more_processes_than_gpus(device, gpus, found, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert launch.affordable(4, device) == found
    assert bool(capsys.readouterr().err) == (found < 4)


@pytest.fixture
def sums(monkeypatch) -> list[int]:
    """The sizes of all sums of a team of one process."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    for name, value in {"together": True, "end": 3, "images": 3}.items():
        monkeypatch.setattr(distributed._Team, name, value)
    sizes, all_reduce = [], torch.distributed.all_reduce

    def noted(tensor, how):
        sizes.append(tensor.numel())
        all_reduce(tensor, how)

    monkeypatch.setattr(torch.distributed, "all_reduce", noted)
    yield sizes
    torch.distributed.destroy_process_group()


def test_gradients_are_summed_in_buckets(sums, monkeypatch):
    x, found = torch.ones(3, 1, 8, 8), []
    model = synchronize(placed(new_model("tiny", 1, 10, seed=0), CPU)).eval()
    for size in (None, 6000, 25 * 2**20):
        model.zero_grad(set_to_none=True)
        sums.clear()
        with nullcontext() if size is None else distributed.bucketed(model.parameters()):
            monkeypatch.setattr(distributed, "_BUCKET_BYTES", size)
            (model(x).sum() / 3).backward()
        found.append(([p.grad.clone() for p in model.parameters()], len(sums)))
        assert sum(sums) == sum(p.numel() for p in model.parameters())
    (plain, many), (small, some), (large, one) = found
    assert many > some > one == 1
    for gradients in (small, large):
        assert all(torch.equal(a, b) for a, b in zip(plain, gradients, strict=True))
        assert [a.stride() for a in plain] == [b.stride() for b in gradients]
