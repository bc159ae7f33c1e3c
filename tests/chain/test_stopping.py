"""SIGTERM at random moments, until the run is done: the undisturbed run is the oracle."""

import json
import os
import pkgutil
import random
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT, run_of
from test_parallel import descendants
from test_zygote import launched, wait_until

import harness.training.epochs
import harness.training.train
from harness.core import paths, process
from harness.core.files import write_whole
from harness.core.process import CODE
from harness.data import load
from harness.jobs.start import ADDRESS
from harness.training.batches import Batches
from harness.training.runs import Selection
from harness.training.train import train

MOMENTS, TRIES = 10, 40
INSIDE = re.compile(r"found SIGTERM after epoch \d+( and \d+ steps)? of")
CPU = torch.device("cpu")


def outcome(results: Path, run) -> tuple[str, str]:
    about = json.loads(paths.description(results, run.id).read_text())
    return about["sha256"], paths.history(results, run.id).read_text()


def begin(*words: str, address: str = "") -> subprocess.Popen:
    """A job in a session of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", ADDRESS: address}
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stop(process: subprocess.Popen, others: list[int]) -> None:
    """As Slurm does it: everyone at once."""
    for pid in [process.pid, *descendants(process.pid), *others]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def disturbed(
    start, checkpoint: Path, others, seed: int, window: float = 300, moments: int = MOMENTS
) -> list[str]:
    """Stopped at random moments and started again until it is done; what the stops within it said.

    Some moments are of the whole job, its start included; most come soon after it said that it goes on.
    Without a window, which must fit the job, all of them: the first comes with its first checkpoint.
    """
    draw, inside = random.Random(seed), []
    for _ in range(TRIES):
        process = start()
        wait = draw.uniform(0.5, 1) * window
        if len(inside) == moments:
            wait = 300
        elif window == 300 and not checkpoint.exists():
            wait_until(lambda begun=process: checkpoint.exists() or begun.poll() is not None)
            wait = 0
        elif checkpoint.exists() and (window == 300 or draw.random() < 0.8):
            process.stdout.readline()
            wait = draw.uniform(0, 0.1)
        try:
            _, said = process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            stop(process, others() if draw.random() < 0.5 else [])
            _, said = process.communicate(timeout=60)
        if process.returncode == 0:
            return inside
        # The second: before Python could listen.
        assert process.returncode in (CODE, -signal.SIGTERM), said
        assert "Traceback" not in said, said
        if process.returncode == CODE:
            last = said.splitlines()[-1]
            assert last.startswith("error: expected to come to the end, found SIGTERM"), said
        if INSIDE.search(said):
            inside.append(said)
        elif not checkpoint.exists():
            window *= 1.2
    raise AssertionError(f"not done after {TRIES} starts")


@pytest.fixture(scope="module")
def zygote():
    address, process = launched()
    yield address, process
    process.stdin.close()
    assert process.wait(10) == 0


@pytest.fixture(scope="module")
def parents(plan, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parents")
    for parent in run_of(plan, "rmc").parents:
        train(plan.run(parent), folder, CPU)
    return folder


@pytest.mark.parametrize("slug", ["at", "generalist_t", "eat", "ramp", "rmc"])
def test_stopped_at_random_moments_it_ends_with_the_same_bits(plan, slug, zygote, parents, tmp_path):
    """Through a zygote, which makes a start cheap: the client gets the signal, the job acts."""
    address, server = zygote
    run, whole, parts = run_of(plan, slug), tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        (folder / "models").mkdir(parents=True)
        for parent in run.parents:
            (folder / "models" / parent).symlink_to(paths.model(parents, parent).parent)
    train(run, whole, CPU)
    words = ["harness", "start", "train", "--scale", "ci", "--run", run.id, "--results", str(parts)]
    stops = disturbed(
        lambda: begin(*words, address=address),
        paths.checkpoint(parts, run.id),
        lambda: [server.pid, *descendants(server.pid)],
        seed=len(slug),
        window=0.2,
    )
    assert any("steps" in said for said in stops), stops
    assert outcome(parts, run) == outcome(whole, run)
    assert not [path for path in parts.rglob("*") if path.name.startswith(".")]
    assert not paths.checkpoint(parts, run.id).exists()
    print(f"{slug}: {len(stops)} stops within the run")


def test_so_do_learners_in_processes_of_their_own(plan, tmp_path):
    """They get the signal too, and live on until the training process has their state. Three moments:
    the drill of a stopped learner has twenty (docs/reliability.md)."""
    run, serial = (run_of(plan, f"generalist_d_nt_linf_{how}") for how in ("parallel", "serial"))
    train(serial, tmp_path, CPU)
    words = ["harness", "train", "--scale", "ci", "--run", run.id, "--results", str(tmp_path)]
    checkpoint = paths.checkpoint(tmp_path, run.id)
    stops = disturbed(lambda: begin(*words), checkpoint, list, seed=0, moments=3)
    assert any("steps" in said for said in stops), stops
    assert outcome(tmp_path, run) == outcome(tmp_path, serial)
    print(f"{len(stops)} stops within the run")


def test_a_stop_while_an_epoch_is_judged_repeats_the_judgement_only(plan, tmp_path, monkeypatch):
    attack = plan.columns.probe("PGD20", "digits").attack
    run = run_of(plan, "at", selection=Selection("validation", attack))
    train(run, tmp_path / "whole", CPU)
    right, calls = harness.training.epochs.right, []
    batches = -(-len(load("digits", "validation")) // run.recipe.batch_size)

    def right_and_stop(model, x, y):
        calls.append(None)
        if len(calls) == 2 * batches + 2:  # between two batches of the second epoch
            os.kill(os.getpid(), signal.SIGTERM)
        return right(model, x, y)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("harness.training.epochs.right", right_and_stop)
    monkeypatch.setattr(process._Sigterm, "came", False)
    process.listen()
    try:
        with pytest.raises(process.Stopped, match="after epoch 1 and 4 steps of"):
            train(run, tmp_path / "parts", CPU)
    finally:
        signal.signal(signal.SIGTERM, before)
    monkeypatch.undo()
    train(run, tmp_path / "parts", CPU)
    assert outcome(tmp_path / "parts", run) == outcome(tmp_path / "whole", run)


def test_a_checkpoint_between_epochs_if_an_epoch_is_long(plan, tmp_path, monkeypatch):
    """A kill that says nothing then costs minutes, not hours."""
    run = run_of(plan, "at")
    train(run, tmp_path / "whole", CPU)
    original = Batches.at

    def at(self, order, epoch, step):
        if (epoch, step) == (1, 2):
            raise InterruptedError
        return original(self, order, epoch, step)

    monkeypatch.setattr("harness.training.train._SAVE_SECONDS", 0.0)
    monkeypatch.setattr(Batches, "at", at)
    with pytest.raises(InterruptedError):
        train(run, tmp_path / "parts", CPU)
    monkeypatch.undo()
    state = harness.training.train.read_checkpoint(paths.checkpoint(tmp_path / "parts", run.id), run)
    assert (state["epoch"], state["step"]) == (1, 2)
    train(run, tmp_path / "parts", CPU)
    assert outcome(tmp_path / "parts", run) == outcome(tmp_path / "whole", run)


def test_an_evaluation_leaves_at_once_and_loses_a_batch_at_most(plan, zygote, tmp_path):
    address, server = zygote
    run, whole, parts = run_of(plan, "at"), tmp_path / "whole", tmp_path / "parts"
    train(run, whole, CPU)
    (parts / "models").mkdir(parents=True)
    (parts / "models" / run.id).symlink_to(whole / "models" / run.id)
    words = ["harness", "start", "evaluate", "--scale", "ci", "--run", run.id, "--results"]
    assert begin(*words, str(whole), address=address).wait(300) == 0
    draw, stops, file = random.Random(0), 0, paths.records(parts, plan.evaluations[run.id].id)
    for _ in range(MOMENTS):
        process = begin(*words, str(parts), address=address)
        try:
            process.communicate(timeout=draw.uniform(0.2, 2))
        except subprocess.TimeoutExpired:
            stop(process, [server.pid, *descendants(server.pid)] if draw.random() < 0.5 else [])
            _, said = process.communicate(timeout=20)
            if process.returncode != 0:
                assert process.returncode in (CODE, -signal.SIGTERM), said
                assert "Traceback" not in said
                assert not file.exists()
                stops += process.returncode == CODE
        assert not [path for path in parts.rglob("*") if path.name.startswith(".")]
        if process.returncode == 0:
            break
    assert stops
    assert begin(*words, str(parts), address=address).wait(300) == 0
    mine, theirs = np.load(file), np.load(paths.records(whole, plan.evaluations[run.id].id))
    assert mine.keys() == theirs.keys()
    for name in mine.keys() - {"about"}:  # it holds seconds
        assert np.array_equal(mine[name], theirs[name])
    print(f"{stops} stops within the evaluation")


@pytest.mark.parametrize("moment", ["harness.core.files._open_locked", "os.fsync"])
def test_a_file_is_written_whole_before_sigterm_acts(moment, tmp_path, monkeypatch):
    """Also between making the file aside and the `try` that would remove it again."""
    before, act = signal.getsignal(signal.SIGTERM), pkgutil.resolve_name(moment)

    def right_and_stop(argument):
        done = act(argument)
        os.kill(os.getpid(), signal.SIGTERM)
        return done

    monkeypatch.setattr(process._Sigterm, "came", False)
    monkeypatch.setattr(moment, right_and_stop)
    process.listen()
    try:
        with pytest.raises(process.Stopped):
            write_whole(tmp_path / "file", "new")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "new"
