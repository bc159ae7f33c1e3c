"""What most tests need: a small network, a batch of digits, a lab, a short run, a small build."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import shutil
import signal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import command as command
from commands import said, snakemake

from harness.attacks.attack import Threat
from harness.attacks.balls import Ball
from harness.core.config import ROOT as ROOT
from harness.core.config import read_grid
from harness.core.files import whole_folder
from harness.data import load
from harness.evaluation.records import Records, read_records
from harness.grid.plan import Plan
from harness.models.networks import new_model
from harness.training.batches import unit
from harness.training.contracts import Batch, Clock, Lab
from harness.training.runs import TrainRun
from harness.training.train import make_lab

LINF = Threat(Ball("linf", Fraction(36, 255)), Fraction(10, 255), 3)
L2 = Threat(Ball("l2", Fraction(128, 255)), Fraction(40, 255), 3)
ARTEFACT = "cvpr23_table1a"  # of the small build
METHODS = ["nt", "at", "trades6", "generalist_d_nt_linf"]

# What `make check` leaves to `make test`: most of these start processes, each of which imports torch.
# A third of the tests, and four fifths of the CPU time (benchmarks/README.md).
SLOW = (
    "attacks/test_autoattack.py",
    "baselines/test_contract.py",
    "chain",
    "core/test_commands.py",
    "evaluation/test_evaluate.py",
    "evaluation/test_parts.py",
    "external/test_benchmark.py",
    "external/test_odd_models.py",
    "generalist",
    "grid/test_mutations.py",
    "jobs/test_zygote.py",
    "machine/test_distributed.py",
    "machine/test_gpus.py",
    "reports/test_compare.py",
    "reports/test_figures.py",
    "reports/test_page.py",
    "reports/test_robustbench.py",
    "repository/test_drills.py",
    "repository/test_guides.py",
    "repository/test_wheel.py",
    "training/test_precision.py",
    "training/test_train.py",
    "training/test_trunks.py",
    "training/test_watch.py",
)

torch.set_num_threads(1)
# `make test &`: a shell's background job ignores Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    slow = [here / name for name in SLOW]
    for path in slow:
        assert path.exists(), path
    for item in items:
        if any(item.path.is_relative_to(path) for path in slow):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def plan() -> Plan:
    return Plan.read("ci")


@pytest.fixture(scope="session")
def batch() -> Batch:
    images = load("digits", "train").take(slice(48))
    x, y = torch.from_numpy(images.x), torch.from_numpy(images.y)
    return Batch(unit(x), y, torch.arange(len(y)))


@pytest.fixture
def model() -> torch.nn.Module:
    return new_model("tiny", channels=1, num_classes=10, seed=0)


@pytest.fixture
def clock() -> Clock:
    return Clock(epoch=0, step=0, epochs=4, steps_per_epoch=3)


@pytest.fixture
def lab(plan: Plan, tmp_path: Path) -> Lab:
    return make_lab(run_of(plan, "nt"), tmp_path, torch.device("cpu"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own."""
    monkeypatch.setenv("GENERALIST_DATA", str(tmp_path))
    return tmp_path


def about_of(path: Path) -> dict[str, Any]:
    """What a record file of our own says of itself."""
    with np.load(path) as arrays:
        return json.loads(arrays["about"].tobytes())


def records_in(path: Path) -> Records:
    """All records of a file of our own, which we believe what it says of its probes."""
    about = about_of(path)
    named = about["probes"].items()
    probes = [SimpleNamespace(**{"id": name, "heat": None, **own}) for name, own in named]
    return read_records(path, SimpleNamespace(run=about["run"], probes=probes))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def run_of(plan: Plan, slug: str, **changes) -> TrainRun:
    return dataclasses.replace(plan.train_run(slug, "cifar10", "resnet18", seed=0), **changes)


def clocks(epochs: int = 4, steps_per_epoch: int = 3) -> list[Clock]:
    return [Clock(e, s, epochs, steps_per_epoch) for e in range(epochs) for s in range(steps_per_epoch)]


def weights(model: torch.nn.Module) -> torch.Tensor:
    """Every floating-point number of a network, in one row."""
    values = [t.flatten() for t in model.state_dict().values() if t.is_floating_point()]
    return torch.cat(values)


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table of four methods and a figure of each kind, with few more models."""
    content = read_grid()
    ours = METHODS[-1]
    content["axes"] = {
        "gamma": {"0.5": {"gamma": [0.5] * 4}, "late": {"gamma": [1, 1, 1, 0]}},
        "c": {1: {"c": "1/120"}, 5: {"c": "5/120"}},
    }
    changes = {
        ARTEFACT: {"methods": METHODS},
        "cvpr23_fig1": {"methods": METHODS},
        "cvpr23_fig3": {"vary": [{"of": ours, "over": ["gamma", "c"]}]},
        "plusplus_fig9a": {"vary": [{"of": ours, "over": [axis]} for axis in ("gamma", "c")]},
        "cvpr23_fig5a": {"methods": METHODS},
        "cvpr23_fig5b": {"methods": METHODS},
        "plusplus_fig8a": {"methods": METHODS, "show": {"right": [ours]}},
        "zipper_fig5": {},
        "zipper_fig6": {},
        "extra_mixing": {"methods": [ours]},
        "extra_radii": {"methods": METHODS},
        "extra_agreement": {"methods": METHODS},
        "extra_switches": {
            "methods": [ours, METHODS[0]],
            "vary": [{"of": ours, "over": ["c"]}],
            "show": {"whole": [METHODS[0]]},
            "columns": ["NAT", "AA_inf"],
        },
        "extra_theory": {"methods": [ours]},
        "extra_barrier": {"methods": [ours]},
    }
    entries = content["artefacts"]
    content["artefacts"] = {name: entries[name] | change for name, change in changes.items()}
    front = {"vary": [{"of": ours, "over": ["gamma"]}]}
    content["artefacts"]["front"] = entries["extra_front"] | front  # the scale has its own extra_front
    path = tmp_path_factory.mktemp("config") / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, grid: Path, worker_id: str) -> Path:
    """That grid, built by Snakemake at the test scale: a folder with results and reports.

    Built once for all workers of pytest-xdist: each has a copy of its own, which its tests may change.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "built_once"
    with (shared.parent / "built_once.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            with whole_folder(shared) as folder:
                done = snakemake(cwd=folder, grid=grid)
                assert done.returncode == 0, said(done)
    return shutil.copytree(shared, tmp_path_factory.mktemp("built"), dirs_exist_ok=True)
