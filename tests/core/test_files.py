"""What a file may hold: no record unpacks to more than it can be; nothing goes without its checksum."""

import json
import tracemalloc

import numpy as np
import pytest
from conftest import ROOT

from drills import archives
from harness.core import paths
from harness.core.errors import UserError
from harness.core.files import read_json, write_json
from harness.core.paths import read_description, read_history, write_description
from harness.evaluation.records import Record, read_evaluation, write_records
from harness.grid.columns import EvalRun, Probe

PROBE = Probe("digits", 60, None, 60)
EVALUATION = EvalRun("run", (PROBE,))
REFUSAL = r"^expected .*, found .*; delete it to compute it again\.$"
MEMORY = 30e6  # bytes; the archives would unpack to 3e9


@pytest.fixture
def arrays(tmp_path):
    right = np.arange(60) < 40
    record = Record(right, right.astype(np.int16), np.where(right, -1, 0).astype(np.int8), 1, 0, 1, 0)
    path = paths.records(tmp_path, EVALUATION.id)
    write_records(path, {PROBE.id: record}, {"run": "run"}, {"digits": np.zeros(60, np.int16)})
    with np.load(path) as whole:
        return dict(whole)


@pytest.mark.parametrize("kind", archives.KINDS)
def test_a_hostile_archive(kind, arrays, tmp_path):
    make = archives.KINDS[kind]
    paths.records(tmp_path, EVALUATION.id).write_bytes(make(arrays, f"{PROBE.id}.correct"))
    before = sorted(tmp_path.rglob("*"))
    tracemalloc.start()
    try:
        if make in archives.HARMLESS:
            records, _ = read_evaluation(tmp_path, EVALUATION)
            assert records[PROBE.id].correct.sum() == 40
        else:
            with pytest.raises(UserError, match=REFUSAL):
                read_evaluation(tmp_path, EVALUATION)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert sorted(tmp_path.rglob("*")) == before


def test_records_must_be_of_one_number_of_images(tmp_path):
    """Shorter than what stands beside them: a table could not be computed."""
    other = Probe("digits", 60, None, 60, seed=1)
    both = EvalRun("run", (PROBE, other))
    kinds = {"correct": np.bool_, "predicted": np.int16, "broken_by": np.int8}

    def cut(n):
        own = {name: np.ones(n, kind) for name, kind in kinds.items()}
        return Record(**own, forward=1, backward=0, forward_examples=1, backward_examples=0)

    write_records(paths.records(tmp_path, both.id), {PROBE.id: cut(60), other.id: cut(59)}, {})
    with pytest.raises(UserError, match="records of as many images each"):
        read_evaluation(tmp_path, both)
    write_records(paths.records(tmp_path, both.id), {PROBE.id: cut(60)}, {})
    with pytest.raises(UserError, match=r"expected the records of .* found none"):
        read_evaluation(tmp_path, both)


def test_json_without_its_checksum_is_refused(tmp_path):
    path = tmp_path / "about.json"
    write_json(path, {"a": 1})
    assert read_json(path, "description", "delete it") == {"a": 1}
    path.write_text(json.dumps({"a": 1}))
    with pytest.raises(UserError, match="truncated or altered"):
        read_json(path, "description", "delete it")


def test_a_history_without_its_checksum_is_refused(tmp_path):
    write_description(tmp_path, "run", {"sha256": ""}, [{"epoch": 1, "loss": 2.0}])
    assert read_history(tmp_path, "run").loss.tolist() == [2.0]
    about = read_description(tmp_path, "run")
    del about["history_sha256"]
    write_json(paths.description(tmp_path, "run"), about)
    with pytest.raises(UserError, match="history of a run"):
        read_history(tmp_path, "run")


def test_every_committed_description_has_its_checksums():
    for path in ROOT.glob("results/models/*/run.json"):
        read_history(ROOT / "results", path.parent.name)
