import shutil
import subprocess
import sys
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from conftest import ROOT, about_of, command, generator, run_of
from safetensors.torch import save_file

from harness.attacks.attack import perturb
from harness.attacks.pgd import PGD, snapshots
from harness.core import paths
from harness.core.errors import UserError
from harness.core.paths import read_description
from harness.data import load
from harness.evaluation.evaluate import evaluate
from harness.evaluation.probing import evaluate_batch, evaluate_family
from harness.evaluation.records import read_evaluation, read_shard, value
from harness.grid.columns import EvalRun, Probe
from harness.grid.plan import Plan
from harness.models.networks import load_model
from harness.training.batches import unit
from harness.training.train import train

CPU = torch.device("cpu")


COLUMNS = ("NAT", "PGD20", "PGD100", "MIM", "CW", "APGD_ce", "PGD20_2")


@pytest.fixture(scope="module")
def trained(plan, tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    run = run_of(plan, "at")
    train(run, results, CPU)
    probes = [plan.columns.probe(column, "digits") for column in COLUMNS]
    return results, EvalRun(run.id, tuple(probes))


def evaluated(evaluation, results):
    weights = read_description(results, evaluation.run)["sha256"]
    evaluate(evaluation, load_model(results, evaluation.run), weights, results, CPU)


def records_of(results, evaluation):
    return read_evaluation(results, evaluation)


def test_records(trained, plan):
    results, evaluation = trained
    evaluated(evaluation, results)
    records, about = records_of(results, evaluation)
    natural = records[plan.columns.probe("NAT", "digits").id]
    assert len(natural.correct) == plan.scale["test"]["examples"]
    steps_of = {"PGD20": 20, "PGD100": 100, "PGD20_2": 20, "MIM": 20, "CW": 30}
    for column, steps in steps_of.items():
        record = records[plan.columns.probe(column, "digits").id]
        assert record.backward == steps
        assert not (record.correct & ~natural.correct).any()
        assert np.array_equal(record.broken_by == -2, ~natural.correct)
        assert np.array_equal(record.broken_by == -1, record.correct)
    assert about["run"] == evaluation.run
    assert about["probes"][plan.columns.probe("PGD20", "digits").id]["attack"]["ball"]["eps"] == "12/85"


@pytest.mark.parametrize("start", ["uniform", "normal"])
@pytest.mark.parametrize("changes", [{}, {"momentum": 1.0}, {"loss": "kl"}], ids=str)
def test_a_snapshot_is_what_the_shorter_attack_finds_alone(trained, plan, start, changes):
    results, evaluation = trained
    model, images = load_model(results, evaluation.run), load("digits", "test").take(slice(40))
    x, y = unit(torch.from_numpy(images.x)), torch.from_numpy(images.y)
    attack = replace(plan.columns.probe("PGD20", "digits").attack, start=start, **changes)
    family = [Probe("digits", 40, replace(attack, steps=n), 40) for n in (1, 20, 100)]
    assert len({probe.family for probe in family}) == 1
    together = evaluate_family(model, family, x, y, generator(5))
    for probe, record in zip(family, together, strict=True):
        alone = evaluate_batch(model, probe, x, y, generator(5))
        assert record.backward == probe.attack.steps
        for name, wanted in asdict(alone).items():
            assert np.array_equal(getattr(record, name), wanted), name
    images = [perturb(probe.attack, model, x, y, generator=generator(5)) for probe in family]
    taken = snapshots([p.attack for p in family], model, x, y, generator=generator(5))
    assert all(torch.equal(one, other) for one, other in zip(images, taken, strict=True))


def test_only_steps_make_a_family(plan):
    twenty, hundred = (plan.columns.probe(name, "digits") for name in ("PGD20", "PGD100"))
    assert twenty.family == hundred.family
    assert twenty.id != hundred.id
    others = [plan.columns.probe(c, "digits") for c in ("NAT", "MIM", "CW", "PGD20_2", "APGD_ce")]
    others += [replace(twenty, **change) for change in ({"seed": 1}, {"batch_size": 7})]
    assert len({twenty.family, *(probe.family for probe in others)}) == len(others) + 1


def test_a_probe_finds_the_same_in_any_company(trained, tmp_path):
    """PGD20 computed with PGD100, alone, or after PGD100's shards are there already."""
    results, evaluation = trained
    evaluated(evaluation, results)
    both, _ = records_of(results, evaluation)
    shutil.copytree(results / "models", tmp_path / "models")
    pgd = [p for p in evaluation.probes if p.attack and p.attack.slug.startswith("pgd")]
    for probe in pgd:
        evaluated(EvalRun(evaluation.run, (probe,)), tmp_path)
        records, _ = records_of(tmp_path, EvalRun(evaluation.run, (probe,)))
        assert asdict(records[probe.id]).keys() == asdict(both[probe.id]).keys()
        for name, wanted in asdict(both[probe.id]).items():
            assert np.array_equal(getattr(records[probe.id], name), wanted), name


def test_killed_anywhere_it_continues_to_the_same_records(trained):
    results, evaluation = trained
    evaluated(evaluation, results)
    before, _ = records_of(results, evaluation)
    kept = {}
    for number, path in enumerate(sorted((results / "records" / evaluation.run).rglob("*.npz"))):
        if number % 2:
            path.unlink()
        else:
            kept[path] = path.stat().st_mtime_ns
    paths.records(results, evaluation.id).unlink()
    evaluated(evaluation, results)
    after, _ = records_of(results, evaluation)
    for probe, record in before.items():
        assert np.array_equal(record.correct, after[probe].correct)
        assert np.array_equal(record.predicted, after[probe].predicted)
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


def test_kill_9_twice_changes_nothing(trained, plan, tmp_path):
    results, _ = trained
    run = run_of(plan, "at")
    shutil.copytree(results / "models", tmp_path / "models")
    words = ["harness", "evaluate", "--scale", "ci", "--run", run.id, "--results"]
    shards = tmp_path / "records" / run.id
    for wanted in (3, 20):
        process = subprocess.Popen(
            [sys.executable, "-m", *words, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 120
        while len(list(shards.rglob("*.npz"))) < wanted and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
        process.wait()
    kept = {path: path.stat().st_mtime_ns for path in shards.rglob("*.npz")}
    assert len(kept) >= 20
    command(*words, str(tmp_path), cwd=ROOT, check=True)
    command(*words, str(results), cwd=ROOT, check=True)
    evaluation = plan.evaluations[run.id]
    (after, _), (before, _) = records_of(tmp_path, evaluation), records_of(results, evaluation)
    for probe, record in before.items():
        assert np.array_equal(record.broken_by, after[probe].broken_by)
        assert np.array_equal(record.predicted, after[probe].predicted)
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


def test_a_truncated_record_is_one_sentence(trained):
    results, evaluation = trained
    evaluated(evaluation, results)
    shard = paths.shard(results, evaluation.run, evaluation.probes[0].id, 0)
    whole = shard.read_bytes()
    for path in (results / "records").glob("*.npz"):  # else its record would be taken over
        path.unlink()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="truncated or altered file"):
        evaluated(evaluation, results)
    shard.write_bytes(whole)


def test_a_flipped_byte_is_noticed_or_harmless(trained, tmp_path):
    results, evaluation = trained
    evaluated(evaluation, results)
    probe = evaluation.probes[0]
    whole = paths.shard(results, evaluation.run, probe.id, 0).read_bytes()
    (tmp_path / "whole.npz").write_bytes(whole)
    stamp = about_of(tmp_path / "whole.npz")["stamp"]
    assert stamp["weights"] == read_description(results, evaluation.run)["sha256"]
    (record, _), noticed = read_shard(tmp_path / "whole.npz", probe, stamp), 0
    assert read_shard(tmp_path / "whole.npz", probe, {**stamp, "images": "another source"}) is None
    for place in range(0, len(whole), 11):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        (tmp_path / "flipped.npz").write_bytes(bytes(flipped))
        try:
            found = read_shard(tmp_path / "flipped.npz", probe, stamp)
        except UserError as error:
            noticed += "delete it" in str(error)
        else:
            if found is None:  # the stamp itself was hit: it will be computed again
                continue
            same, _ = found
            assert np.array_equal(same.correct, record.correct)
            assert np.array_equal(same.predicted, record.predicted)
            assert same.backward == record.backward
    assert noticed > 5


def test_a_new_column_computes_itself_and_nothing_else(trained, plan, tmp_path):
    """In a clone: the model and its record file are there, the shards of its batches are not."""
    results, evaluation = trained
    evaluated(evaluation, results)
    before, _ = records_of(results, evaluation)
    clone = tmp_path / "clone"
    ignored = shutil.ignore_patterns(f"{evaluation.run}")
    shutil.copytree(results / "models", clone / "models")
    shutil.copytree(results / "records", clone / "records", ignore=ignored)
    new = replace(plan.columns.probe("PGD20_x2", "digits"), seed=7)  # recorded by no other test
    more = EvalRun(evaluation.run, (*evaluation.probes, new))
    evaluated(more, clone)
    assert [path.name for path in (clone / "records" / evaluation.run).iterdir()] == [new.id]
    after, about = records_of(clone, more)
    assert after.keys() == {*before, new.id}
    assert all(np.array_equal(before[p].correct, after[p].correct) for p in before)
    assert about["weights"] == read_description(clone, evaluation.run)["sha256"]


def test_records_of_other_weights_do_not_count(trained):
    results, evaluation = trained
    evaluated(evaluation, results)
    before, _ = records_of(results, evaluation)
    model = load_model(results, evaluation.run)
    with torch.no_grad():
        model.linear.weight.neg_()
    evaluate(evaluation, model, "other weights", results, CPU)
    after, _ = records_of(results, evaluation)
    assert any(not np.array_equal(before[p].correct, after[p].correct) for p in before)
    evaluated(evaluation, results)
    again, _ = records_of(results, evaluation)
    assert all(np.array_equal(before[p].correct, again[p].correct) for p in before)


def test_a_pickle_in_a_record_is_refused(trained, tmp_path):
    np.savez(tmp_path / "hostile.npz", about=np.array([object()]))
    with pytest.raises(UserError, match="truncated or altered"):
        read_shard(tmp_path / "hostile.npz", trained[1].probes[0], {})


def test_an_evaluation_is_named_by_all_its_probes(trained):
    _, evaluation = trained
    fewer = EvalRun(evaluation.run, evaluation.probes[:-1])
    assert fewer.id != evaluation.id


class Counter(torch.nn.Module):
    """Ten classes by brightness; knows how often it was asked."""

    def forward(self, x):
        level = x.mean(dim=(1, 2, 3))[:, None] * 40
        return -(level - torch.arange(10.0)).square()


def test_a_cascade_says_which_stage_broke_what(plan):
    x = torch.linspace(0.02, 0.2, 40)[:, None, None, None].expand(-1, 1, 8, 8).contiguous()
    y = Counter()(x).argmax(dim=1)
    ball = plan.columns.probe("PGD20", "digits").attack.ball
    weak, strong = PGD(ball, ball.eps / 100, 1, "zero"), PGD(ball, ball.eps / 4, 10, "zero")

    class Two:
        slug, stages = "two", (weak, strong)

    generator = torch.Generator().manual_seed(0)
    record = evaluate_batch(Counter(), Probe("digits", 40, Two(), 40), x, y, generator)
    alone = evaluate_batch(Counter(), Probe("digits", 40, weak, 40), x, y, generator)
    assert set(record.broken_by.tolist()) == {0, 1}
    assert np.array_equal(record.broken_by == 0, ~alone.correct)


def test_all_wrong_and_all_broken_inputs_are_no_problem(plan):
    x, y = torch.rand(5, 1, 8, 8), torch.full((5,), 9)
    generator = torch.Generator().manual_seed(0)
    for column in ("PGD20", "APGD_t", "AA"):
        attack = plan.columns.probe(column, "digits").attack
        record = evaluate_batch(Counter(), Probe("digits", 5, attack, 5), x * 0, y, generator)
        assert not record.correct.any()
        assert set(record.broken_by.tolist()) == {-2}


def test_aa_from_components_and_from_the_cascade_agree(plan, trained):
    """Up to the attacks' own randomness: other survivors mean other noise."""
    results, evaluation = trained
    both = plan.columns.resolved("AA", "digits", "as_named", "components")
    alone = plan.columns.resolved("AA", "digits", "as_named", "cascade")
    assert (both.formula.op, alone.formula.op) == ("all", "probe")
    assert len(both.probes) == 4
    evaluation = EvalRun(evaluation.run, (*both.probes, *alone.probes))
    evaluated(evaluation, results)
    records, _ = records_of(results, evaluation)
    differ = value(both.formula, records) != value(alone.formula, records)
    assert differ.mean() <= 0.05


def test_the_released_protocol_makes_ten_steps_of_everything(plan):
    for column in ("PGD20", "PGD100", "MIM", "CW"):
        assert plan.columns.probe(column, "digits", "released").attack.steps == 10
    assert plan.columns.probe("PGD100", "digits").attack.steps == 100
    paper = Plan.read("paper")
    assert str(paper.columns.probe("PGD20", "cifar10", "released").attack.ball.eps) == "31/1000"


def test_somebody_elses_model(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    torch.manual_seed(0)
    weights = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    words = ["--model", "net.py:build", "--weights", "w.safetensors", "--data", "digits"]
    words += ["--scale", "ci", "--attacks", "all", "--examples", "60"]
    done = command("harness", "evaluate", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (report,) = (tmp_path / "results" / "external").glob("*/report.md")
    text = report.read_text()
    assert all(f"| {column} |" in text for column in ("NAT", "PGD100", "AA", "true_union"))
    assert "usable gradients" in text
    assert "net.py:build" in report.with_suffix(".html").read_text()
    for wrong, message in (
        (["--model", "net.py:bild", "--data", "digits"], "a function 'bild'"),
        (["--model", "nt.py:build", "--data", "digits"], "path.py:function"),
        (["--model", "net.py:build"], "expected cifar10, found its stand-in"),
        (["--model", "net.py:build", "--data", "digits", "--attacks", "PGD21"], "known column"),
    ):
        found = command("harness", "evaluate", *wrong, "--scale", "ci", cwd=tmp_path)
        assert found.returncode == 2
        assert message in found.stderr
