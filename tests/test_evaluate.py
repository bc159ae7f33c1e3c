import numpy as np
import pytest
import torch
from conftest import run_of

from harness import paths
from harness.errors import UserError
from harness.evaluate import evaluate
from harness.records import read_records, read_shard
from harness.runs import EvalRun
from harness.train import train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(plan, tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    run = run_of(plan, "at")
    train(run, results, CPU)
    return results, plan.evaluations[run.id]


def records_of(results, evaluation):
    return read_records(paths.records(results, evaluation.id))


def test_records(trained, plan):
    results, evaluation = trained
    evaluate(evaluation, results, CPU)
    records, about = records_of(results, evaluation)
    natural = records[plan.probe("NAT", "cifar10").id]
    assert len(natural.correct) == plan.scale["test"]["examples"]
    for column, steps in (("PGD20", 20), ("PGD100", 100), ("PGD20_2", 20)):
        record = records[plan.probe(column, "cifar10").id]
        assert record.backward == steps
        assert not (record.correct & ~natural.correct).any()
    assert about["run"] == evaluation.run
    assert about["probes"][plan.probe("PGD20", "cifar10").id]["attack"]["ball"]["eps"] == "12/85"


def test_killed_anywhere_it_continues_to_the_same_records(trained):
    results, evaluation = trained
    evaluate(evaluation, results, CPU)
    before, _ = records_of(results, evaluation)
    kept = {}
    for number, path in enumerate(sorted((results / "records" / evaluation.run).rglob("*.npz"))):
        if number % 2:
            path.unlink()
        else:
            kept[path] = path.stat().st_mtime_ns
    paths.records(results, evaluation.id).unlink()
    evaluate(evaluation, results, CPU)
    after, _ = records_of(results, evaluation)
    for probe, record in before.items():
        assert np.array_equal(record.correct, after[probe].correct)
        assert np.array_equal(record.predicted, after[probe].predicted)
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


def test_a_truncated_record_is_one_sentence(trained):
    results, evaluation = trained
    evaluate(evaluation, results, CPU)
    shard = paths.shard(results, evaluation.run, evaluation.probes[0].id, 0)
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="truncated or altered file"):
        evaluate(evaluation, results, CPU)
    shard.write_bytes(whole)
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    shard.write_bytes(bytes(flipped))
    with pytest.raises(UserError, match="delete it"):
        read_shard(shard)
    shard.write_bytes(whole)


def test_a_pickle_in_a_record_is_refused(tmp_path):
    np.savez(tmp_path / "hostile.npz", correct=np.array([object()]))
    with pytest.raises(UserError, match="truncated or altered"):
        read_shard(tmp_path / "hostile.npz")


def test_an_evaluation_is_named_by_all_its_probes(trained):
    _, evaluation = trained
    fewer = EvalRun(evaluation.run, evaluation.probes[:-1])
    assert fewer.id != evaluation.id
