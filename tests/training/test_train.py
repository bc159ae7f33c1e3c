import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace

import pytest
import torch
from conftest import ROOT, command, run_of

from harness.attacks.attack import perturb
from harness.core import paths, process
from harness.core.errors import UserError
from harness.core.files import read_with_checksum, write_whole, write_with_checksum
from harness.data import load
from harness.grid.plan import Plan
from harness.models.networks import load_model
from harness.training.batches import Batches, on_device
from harness.training.epochs import Selector, accuracy
from harness.training.runs import Augment, Selection
from harness.training.train import train

CPU = torch.device("cpu")


def checksum(results, run):
    return json.loads(paths.description(results, run.id).read_text())["sha256"]


def train_command(run, results):
    return ["harness", "train", "--scale", "ci", "--run", run.id, "--results", str(results)]


@pytest.mark.parametrize("slug", ["at", "generalist_t", "generalist_d_nt_linf@released"])
def test_kill_9_between_epochs_changes_no_bit(plan, slug, tmp_path):
    run = run_of(plan, slug)
    undisturbed, disturbed = tmp_path / "a", tmp_path / "b"
    train(run, undisturbed, CPU)
    checkpoint = paths.checkpoint(disturbed, run.id)
    process = subprocess.Popen(
        [sys.executable, "-m", *train_command(run, disturbed)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert checkpoint.exists()
    assert not paths.model(disturbed, run.id).exists()
    finished = command(*train_command(run, disturbed), cwd=ROOT, check=True)
    assert "continuing" in finished.stdout
    assert checksum(undisturbed, run) == checksum(disturbed, run)
    assert not checkpoint.exists()


def interrupted(run, results):
    """A run stopped after its first epoch, its checkpoint left behind."""

    class StopError(Exception):
        pass

    original = Batches.order

    def order(self, epoch):
        if epoch == 1:
            raise StopError
        return original(self, epoch)

    Batches.order = order
    try:
        with pytest.raises(StopError):
            train(run, results, CPU)
    finally:
        Batches.order = original
    return paths.checkpoint(results, run.id)


def test_batches_that_are_read_ahead_survive_a_stop_bit_by_bit(plan, tmp_path, monkeypatch):
    """Stopped inside an epoch, with batches of later steps under way."""
    recipe = replace(run_of(plan, "nt").recipe, augment=Augment(0, False, random_resized_crop=8))
    run = run_of(plan, "nt", recipe=recipe)
    train(run, tmp_path / "a", CPU)

    def at(self, order, epoch, step):
        if (epoch, step) == (1, 2):
            assert (1, 3) in self.source.begun
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, order, epoch, step)

    original = Batches.at
    monkeypatch.setattr(Batches, "at", at)
    before = signal.getsignal(signal.SIGTERM)
    process.listen()
    try:
        with pytest.raises(process.Stopped, match="after epoch 1 and 3 steps"):
            train(run, tmp_path / "b", CPU)
    finally:
        signal.signal(signal.SIGTERM, before)
        process._Sigterm.came = False
    monkeypatch.undo()
    assert paths.checkpoint(tmp_path / "b", run.id).exists()
    train(run, tmp_path / "b", CPU)
    assert checksum(tmp_path / "a", run) == checksum(tmp_path / "b", run)


@pytest.mark.parametrize("damage", [lambda d: d[: len(d) // 2], lambda d: d[:-9] + b"x" + d[-8:]])
def test_a_damaged_checkpoint_is_one_sentence_and_stays(plan, damage, tmp_path):
    run = run_of(plan, "nt")
    checkpoint = interrupted(run, tmp_path)
    checkpoint.write_bytes(damage(checkpoint.read_bytes()))
    found = command(*train_command(run, tmp_path), cwd=ROOT)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "truncated or altered" in found.stderr
    assert "delete it" in found.stderr
    assert checkpoint.exists()


def test_a_checkpoint_of_another_run_is_refused(plan, tmp_path):
    one, other = run_of(plan, "nt"), run_of(plan, "nt", seed=1)
    checkpoint = interrupted(one, tmp_path)
    target = paths.checkpoint(tmp_path, other.id)
    target.parent.mkdir(parents=True)
    target.write_bytes(checkpoint.read_bytes())
    with pytest.raises(UserError, match="found one of"):
        train(other, tmp_path, CPU)


def test_a_compressed_checkpoint_is_refused(plan, tmp_path):
    """Few bytes of it could unpack to gigabytes; torch itself compresses nothing."""
    run = run_of(plan, "nt")
    checkpoint = interrupted(run, tmp_path)
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(read_with_checksum(checkpoint, "checkpoint"))) as before,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for member in before.infolist():
            after.writestr(member.filename, before.read(member))
    write_with_checksum(checkpoint, packed.getvalue())
    with pytest.raises(UserError, match="compressed members"):
        train(run, tmp_path, CPU)


def test_a_results_folder_that_cannot_be_written(plan, tmp_path):
    (tmp_path / "results").write_text("in the way")
    found = command(*train_command(run_of(plan, "nt"), tmp_path / "results"), cwd=ROOT)
    assert found.returncode == 2
    assert "give a folder that can be written" in found.stderr
    assert "Traceback" not in found.stderr


def test_an_unknown_run(tmp_path):
    found = command("harness", "train", "--run", "digits-tiny-nt-s0-0", cwd=tmp_path)
    assert found.returncode == 2
    assert "did you mean" in found.stderr


def test_an_altered_model_is_refused(plan, tmp_path):
    run = run_of(plan, "nt")
    with pytest.raises(UserError, match="train it first"):
        load_model(tmp_path, run.id)
    train(run, tmp_path, CPU)
    assert load_model(tmp_path, run.id)(torch.rand(1, 1, 8, 8)).shape == (1, 10)
    path = paths.model(tmp_path, run.id)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(UserError, match="delete that folder"):
        load_model(tmp_path, run.id)


@pytest.mark.parametrize("use", ["validation", "paper-test"])
def test_selection_deploys_the_best_epoch(plan, use, tmp_path):
    attack = plan.columns.probe("PGD20", "digits").attack
    run = run_of(plan, "at", selection=Selection(use, attack))
    train(run, tmp_path, CPU)
    about = json.loads(paths.description(tmp_path, run.id).read_text())
    lines = paths.history(tmp_path, run.id).read_text().splitlines()
    rows = [
        dict(zip(lines[0].split(","), map(float, row.split(",")), strict=True)) for row in lines[1:]
    ]
    best = max(rows, key=lambda row: row["natural"] + row["robust"])
    assert about["deployed_epoch"] == best["epoch"]


def test_an_epoch_is_judged_in_batches(plan, lab, monkeypatch):
    """Ten thousand images of the papers' networks at once fit into no GPU."""
    run = run_of(
        plan, "nt", selection=Selection("validation", plan.columns.probe("PGD20", "digits").attack)
    )
    images, sizes = load("digits", "validation"), []

    def attacked(attack, model, x, y, **options):
        sizes.append(len(x))
        return perturb(attack, model, x, y, **options)

    monkeypatch.setattr("harness.training.epochs.perturb", attacked)
    training = run.method.start(lab)
    judged = Selector(run, CPU).judge(training, 0)
    assert sum(sizes) == len(images)
    assert max(sizes) <= run.recipe.batch_size
    x, y = on_device(images, CPU)
    assert judged["natural"] == pytest.approx(accuracy(training.deployed(), x, y))
    assert judged["robust"] <= judged["natural"]


def test_an_epoch_is_judged_in_every_norm_of_its_method(plan, lab):
    """Natural plus the mean over the norms decides; without a norm, natural accuracy alone."""
    linf, l2 = (plan.columns.pgd("digits", norm, 20) for norm in ("linf", "l2"))
    found = {}
    for attack in (linf, l2, (linf, l2), None):
        run = run_of(plan, "nt", selection=Selection("validation", attack))
        selector = Selector(run, CPU)
        judged = selector.judge(run.method.start(lab), 0)
        assert selector.best["score"] == judged["natural"] + judged.get("robust", 0)
        found[attack] = judged
    assert list(found[linf]) == list(found[l2]) == ["natural", "robust"]
    assert list(found[None]) == ["natural"]
    both = found[linf, l2]
    assert list(both) == ["natural", "robust", "robust_linf", "robust_l2"]
    assert both["robust"] == pytest.approx((both["robust_linf"] + both["robust_l2"]) / 2)
    # One attack after the other draws from one stream: the starts differ, the accuracies hardly.
    assert both["robust_linf"] == pytest.approx(found[linf]["robust"], abs=0.1)
    assert both["robust_l2"] == pytest.approx(found[l2]["robust"], abs=0.1)


def test_without_an_adversary_natural_accuracy_selects(plan, tmp_path):
    run = run_of(plan, "nt", selection=Selection("validation"))
    train(run, tmp_path, CPU)
    about = json.loads(paths.description(tmp_path, run.id).read_text())
    head, *rows = paths.history(tmp_path, run.id).read_text().splitlines()
    assert "robust" not in head
    place = head.split(",").index("natural")
    natural = [float(row.split(",")[place]) for row in rows]
    assert about["deployed_epoch"] == natural.index(max(natural)) + 1


def test_an_impossible_gate_deploys_the_last_epoch(plan, tmp_path):
    attack = plan.columns.probe("PGD20", "digits").attack
    run = run_of(plan, "nt", selection=Selection("validation", attack, gate=1.0))
    train(run, tmp_path, CPU)
    about = json.loads(paths.description(tmp_path, run.id).read_text())
    assert about["deployed_epoch"] == run.recipe.epochs


def test_only_paper_test_trains_on_the_validation_slice(plan):
    smoke = Plan.read("smoke")
    run = run_of(smoke, "nt")
    all_of_it = run_of(
        smoke, "nt", selection=Selection("paper-test", smoke.columns.probe("PGD20", "digits").attack)
    )
    assert len(Batches(run, CPU).y) == 1168
    assert len(Batches(all_of_it, CPU).y) == 1297


def test_files_appear_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_files_with_a_checksum(tmp_path):
    write_with_checksum(tmp_path / "f", b"payload\n\nmore")
    assert read_with_checksum(tmp_path / "f", "thing") == b"payload\n\nmore"


def test_a_rehearsal_writes_nothing(plan, tmp_path):
    run = run_of(plan, "generalist_d_nt_linf")
    done = command(*train_command(run, tmp_path), "--rehearse", "2", cwd=ROOT, check=True)
    assert "step 2:" in done.stdout
    assert "the whole run takes" in done.stdout
    assert not list(tmp_path.iterdir())
