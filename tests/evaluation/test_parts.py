"""One evaluation shared by several jobs: the same records, whoever computes what, and when."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from conftest import ARTEFACT, ROOT, about_of, command, records_in, run_of, said, snakemake
from safetensors.torch import save_file
from test_workflow import planned

from harness.core import paths
from harness.core.config import read_grid
from harness.core.errors import UserError
from harness.core.files import write_arrays
from harness.core.paths import read_description
from harness.evaluation.evaluate import evaluate, evaluate_part
from harness.evaluation.records import Part, read_evaluation
from harness.grid.columns import EvalRun, Probe
from harness.grid.plan import Plan
from harness.models.networks import load_model
from harness.training.train import train

CPU = torch.device("cpu")
COLUMNS = ("NAT", "PGD20", "PGD100", "AA", "PGD20_2")
SIZE = 12  # of a batch: 60 examples are 5 batches


@pytest.fixture(scope="module")
def trained(plan, tmp_path_factory):
    """A model, what is asked of it, and what one job answers."""
    results = tmp_path_factory.mktemp("results")
    run = run_of(plan, "at")
    train(run, results, CPU)
    probes = [replace(plan.columns.probe(c, "digits"), batch_size=SIZE) for c in COLUMNS]
    evaluation = EvalRun(run.id, tuple(probes))
    evaluate(evaluation, load_model(results, run.id), weights_of(results, run.id), results, CPU)
    return results, evaluation, read_evaluation(results, evaluation)


def weights_of(results: Path, run: str) -> str:
    return read_description(results, run)["sha256"]


def only_model(results: Path, folder: Path) -> Path:
    shutil.copytree(results / "models", folder / "models")
    return folder


def work(evaluation: EvalRun, results: Path, part: Part | None = None) -> None:
    model, weights = load_model(results, evaluation.run), weights_of(results, evaluation.run)
    if part:
        evaluate_part(evaluation, model, weights, results, CPU, part)
    else:
        evaluate(evaluation, model, weights, results, CPU)


def shards(results: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (results / "records").glob("*/*/*.npz")}


def assert_same(one, other) -> None:
    """Everything but what it cost: flags, predictions, stages, passes, warnings, checks, labels."""
    (records, about), (others, about_others) = one, other
    assert records.keys() == others.keys()
    for name, record in records.items():
        for field, wanted in asdict(others[name]).items():
            assert np.array_equal(getattr(record, field), wanted), (name, field)
    for key in ("run", "checks", "probes", "sources"):
        assert about[key] == about_others[key]
    for name, labels in about["labels"].items():
        assert np.array_equal(labels, about_others["labels"][name])


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)])
def test_three_parts_are_one_job(trained, order, tmp_path):
    results, evaluation, alone = trained
    only_model(results, tmp_path)
    for number in order:
        work(evaluation, tmp_path, Part(number, 3))
    made = shards(tmp_path)
    work(evaluation, tmp_path)
    assert shards(tmp_path) == made  # joining computes nothing
    assert_same(read_evaluation(tmp_path, evaluation), alone)


def test_batches_are_dealt_out_evenly(trained, tmp_path):
    results, evaluation, _ = trained
    only_model(results, tmp_path)
    counts = []
    for number in (1, 2, 3):
        before = shards(tmp_path)
        work(evaluation, tmp_path, Part(number, 3))
        own = shards(tmp_path).keys() - before.keys()
        about = json.loads(paths.part(tmp_path, evaluation.id, number, 3).read_text())
        assert about["batches"] == len(own)
        counts.append(Counter(path.parent.name for path in own))
    assert sum(map(Counter.total, counts)) == 5 * len(COLUMNS)
    for probe in evaluation.probes:
        assert sorted(count[probe.id] for count in counts) == [1, 2, 2]
    assert max(map(Counter.total, counts)) - min(map(Counter.total, counts)) <= 2


def test_probes_of_one_batch_are_shared_too():
    """Counted probe by probe, part 1 would get them all."""
    owners = [next(n for n in (1, 2, 3) if Part(n, 3).takes(turn)) for turn in range(75)]
    assert Counter(owners) == {1: 25, 2: 25, 3: 25}


def test_the_cost_is_the_sum_over_batches_whoever_made_them_and_when(trained, tmp_path):
    """Two parts, a batch lost in between, a third sitting that joins: nothing is forgotten."""
    results, evaluation, _ = trained
    only_model(results, tmp_path)
    for number in (1, 2):
        work(evaluation, tmp_path, Part(number, 2))
    lost, *kept = sorted(shards(tmp_path))
    told = {path: about_of(path) for path in kept}
    assert any(about["cost"]["cpu_seconds"] > 0 for about in told.values())
    for path, about in told.items():
        about["cost"]["seconds"] = 100.0
        with np.load(path) as arrays:
            changed = {**arrays, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        write_arrays(path, changed)
    lost.unlink()
    work(evaluation, tmp_path)
    _, about = read_evaluation(tmp_path, evaluation)
    assert 100 * len(kept) < about["seconds"] < 100 * len(kept) + 100


def test_killed_parts_in_reversed_order(trained, plan, tmp_path):
    """`kill -9` in the middle of the second part; what it wrote stays and is not made again."""
    results, _, _ = trained
    only_model(results, tmp_path)
    run = run_of(plan, "at").id
    words = ["harness", "evaluate", "--scale", "ci", "--run", run, "--results"]

    def part(number: int) -> list[str]:
        return [*words, str(tmp_path), "--part", f"{number}/3"]

    command(*part(3), cwd=ROOT, check=True)
    before = len(shards(tmp_path))
    process = subprocess.Popen([sys.executable, "-m", *part(2)], cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(shards(tmp_path)) < before + 4 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    kept, evaluation = shards(tmp_path), plan.evaluations[run]
    assert not paths.part(tmp_path, evaluation.id, 2, 3).exists()
    for number in (2, 1):
        command(*part(number), cwd=ROOT, check=True)
    assert all(paths.part(tmp_path, evaluation.id, number, 3).exists() for number in (1, 2, 3))
    made = shards(tmp_path)
    assert kept.items() <= made.items()
    command(*words, str(tmp_path), cwd=ROOT, check=True)
    assert shards(tmp_path) == made
    work(evaluation, results)
    alone = read_evaluation(results, evaluation)
    assert_same(read_evaluation(tmp_path, evaluation), alone)


def test_a_stale_shard_is_computed_again(trained, tmp_path):
    results, evaluation, alone = trained
    only_model(results, tmp_path)
    for number in (1, 2):
        work(evaluation, tmp_path, Part(number, 2))
    before = shards(tmp_path)
    model = load_model(tmp_path, evaluation.run)
    with torch.no_grad():
        model.linear.weight.neg_()
    evaluate_part(evaluation, model, "other weights", tmp_path, CPU, Part(2, 2))
    stale = {path for path, written in shards(tmp_path).items() if written != before[path]}
    assert len(stale) == pytest.approx(len(before) / 2, abs=2)
    work(evaluation, tmp_path, Part(2, 2))
    again = {path: written for path, written in shards(tmp_path).items() if path not in stale}
    assert again.items() <= before.items()
    work(evaluation, tmp_path)
    assert_same(read_evaluation(tmp_path, evaluation), alone)


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "a/b", "-1/3", "1/0"])
def test_a_part_that_is_none(text):
    with pytest.raises(UserError, match="which part"):
        Part.read(text)


def test_the_number_of_jobs_is_in_no_identity(plan):
    shared = Plan(plan.grid, {**plan.scale, "test": {**plan.scale["test"], "jobs": 7}}, "ci")
    assert (plan.jobs, shared.jobs) == (1, 7)
    assert [e.id for e in shared.evaluations.values()] == [e.id for e in plan.evaluations.values()]
    assert isinstance(shared.columns.probe("PGD20", "digits"), Probe)


def test_somebody_elses_model_in_parts(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    torch.manual_seed(0)
    save_file(torch.nn.Linear(64, 10).state_dict(prefix="1."), tmp_path / "w.safetensors")
    words = ["--model", "net.py:build", "--weights", "w.safetensors", "--data", "digits"]
    words += ["--attacks", "NAT,PGD20,AA", "--scale", "ci"]
    for number in (2, 1):
        done = command("harness", "evaluate", *words, "--part", f"{number}/2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert not list(tmp_path.rglob("report.md"))
    made = shards(tmp_path / "results")
    command("harness", "evaluate", *words, cwd=tmp_path, check=True)
    assert shards(tmp_path / "results") == made
    command("harness", "evaluate", *words, "--results", "alone", cwd=tmp_path, check=True)
    tables = [next((tmp_path / name).rglob("table.csv")) for name in ("results", "alone")]
    assert tables[0].read_text() == tables[1].read_text()


# --- through Snakemake


@pytest.fixture(scope="module")
def two_models(tmp_path_factory) -> Path:
    content = read_grid()
    entry = content["artefacts"][ARTEFACT]
    columns = ["NAT", "PGD20", "AA"]
    content["artefacts"] = {ARTEFACT: {**entry, "methods": ["nt", "at"], "columns": columns}}
    path = tmp_path_factory.mktemp("config") / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_snakemake_shares_an_evaluation(two_models, tmp_path):
    """One job as ever; then the same models with two; then joined again: the parts are there."""
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    alone.mkdir()
    dry = planned(snakemake("-n", ARTEFACT, cwd=alone, grid=two_models))
    assert dry == {"train": 2, "evaluate": 2, "table": 1, ARTEFACT: 1, "total": 6}
    done = snakemake(ARTEFACT, cwd=alone, grid=two_models)
    assert done.returncode == 0, said(done)
    assert not list(alone.rglob("part-*"))

    shutil.copytree(alone / "results" / "models", shared / "results" / "models")
    in_two = {"cwd": shared, "grid": two_models, "jobs": 2}
    dry = planned(snakemake("-n", ARTEFACT, **in_two))
    assert dry == {"evaluate_part": 4, "evaluate": 2, "table": 1, ARTEFACT: 1, "total": 8}
    done = snakemake(ARTEFACT, **in_two)
    assert done.returncode == 0, said(done)
    assert "Nothing to be done" in said(snakemake("-n", ARTEFACT, **in_two))
    names = sorted(path.name for path in (alone / "results" / "records").glob("*.npz"))
    assert len(names) == 2
    for name in names:
        both = [records_in(folder / "results" / "records" / name) for folder in (alone, shared)]
        assert_same(*both)

    wrong = snakemake("-n", ARTEFACT, cwd=shared, grid=two_models, jobs="few")
    assert wrong.returncode != 0
    assert "expected a number of jobs from 1 on, found 'few'" in said(wrong)

    made = shards(shared / "results")
    assert made
    tables = (shared / "reports").rglob(f"{ARTEFACT}.*")
    for path in [*(shared / "results" / "records").glob("*.npz"), *tables]:
        path.unlink()
    dry = planned(snakemake("-n", ARTEFACT, **in_two))
    assert dry == {"evaluate": 2, "table": 1, ARTEFACT: 1, "total": 4}
    assert snakemake(ARTEFACT, **in_two).returncode == 0
    assert shards(shared / "results") == made
