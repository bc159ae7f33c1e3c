"""Every method trains on the device: as it is, in bfloat16, compiled, in processes, by the command."""

import dataclasses
import json
from fractions import Fraction

import pytest
import torch
import torch._dynamo
from conftest import command, run_of, said
from pretend_cuda import NAME
from rehearsal import trained
from test_precision import changed

from harness.core import paths
from harness.grid.specs import write_spec
from harness.training.runs import Watch

METHODS = [
    "nt",
    "at",
    "at_half",
    "trades6",
    "fat",
    "iat",
    "rst",
    "score",
    "agr",
    "part",
    "at_avg",
    "msd",
    "eat",
    "at_l2",
    "ramp",
    "rmc",
]
METHODS += ["generalist_d_nt_linf", "generalist_d_linf_l2", "generalist_t"]
MORE = ["generalist_d_nt_linf@released", "generalist_d_nt_linf@validated", "rmc@official"]
REDUCED = ["at", "trades6", "fat", "part", "agr", "eat", "msd", "iat", "ramp", "generalist_t"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.mark.parametrize("slug", METHODS + MORE)
def test_it_trains(plan, slug, results):
    trained(plan, run_of(plan, slug), results)


def test_it_trains_on_images_that_are_cropped(plan, results):
    trained(plan, plan.train_run("fast_at", "imagenet", "resnet50", seed=0), results)


def test_it_trains_with_a_watch(plan, results):
    attack = plan.columns.pgd("digits", "linf", 3)
    watch = Watch(attack, examples=40, moments=(Fraction(1, 2),))
    trained(plan, run_of(plan, "generalist_d_nt_linf", watch=watch), results)


@pytest.mark.parametrize("slug", REDUCED)
def test_it_trains_in_bfloat16(plan, slug, results):
    trained(plan, changed(run_of(plan, slug), amp="bf16"), results)


def test_learners_in_processes_share_the_device(plan, results):
    serial = run_of(plan, "generalist_d_nt_linf")
    beside = dataclasses.replace(serial, method=dataclasses.replace(serial.method, parallel=True))
    for run in (serial, beside):
        trained(plan, run, results)
    about = [json.loads(paths.description(results, run.id).read_text()) for run in (serial, beside)]
    assert about[0]["sha256"] == about[1]["sha256"]


@pytest.mark.parametrize("slug", ["at", "generalist_d_nt_linf"])
def test_it_trains_compiled(plan, slug, results, monkeypatch):
    """By the backend `aot_eager`: there is no triton for a pretend device."""
    plain = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: plain(self, backend="aot_eager"))
    trained(plan, changed(run_of(plan, slug), compile=True), results)
    counters = torch._dynamo.utils.counters
    assert counters["stats"]["unique_graphs"] > 0
    assert sum(counters["graph_break"].values()) == 0


def test_the_command_trains_and_writes_down_how(plan, tmp_path):
    run = changed(run_of(plan, "at"), tf32=False)
    words = ["train", "--spec", write_spec(run), "--results", str(tmp_path)]
    done = command("harness", *words, cwd=tmp_path)  # --device auto
    assert done.returncode == 0, said(done)
    about = json.loads(paths.description(tmp_path, run.id).read_text())
    assert about["device"] == NAME
    assert about["arithmetic"] == {
        "bf16": False,
        "tf32_convolutions": False,
        "tf32_products": False,
        "deterministic": False,
    }
