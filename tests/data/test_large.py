"""What is read of a set that is larger than the memory: rows, when a batch needs them."""

import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import run_of

from harness.core.files import write_json
from harness.data import cache, load
from harness.data.sets import SETS
from harness.training.batches import Batches
from harness.training.epochs import Selector
from harness.training.runs import Selection
from harness.training.train import make_lab

IMAGES, BYTES = 40_000, 3 * 64 * 64  # half a gigabyte, of which the file system stores nothing
CPU = torch.device("cpu")


@pytest.fixture
def large(folder, monkeypatch) -> str:
    """A memory-mapped set of zeros in which a few images begin with their number."""
    slot = cache.slot("large", "train", "local")
    slot.mkdir(parents=True)
    files = [slot / "x.npy", slot / "y.npy"]
    with files[0].open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (IMAGES, 3, 64, 64)}
        np.lib.format.write_array_header_1_0(file, header)
        begin = file.tell()
        file.truncate(begin + IMAGES * BYTES)
        for number in (3, 200, IMAGES - 1):
            os.pwrite(file.fileno(), bytes([number % 256]), begin + number * BYTES)
    np.save(files[1], np.arange(IMAGES) % 200)
    about = {"source": "here", "sha256": "unknown", "state": cache.state_of(files)}
    write_json(slot / "about.json", about)
    entry = replace(SETS["tinyimagenet"], name="large", images={"train": IMAGES})
    monkeypatch.setitem(SETS, "large", entry)
    return "large"


def test_a_split_is_its_row_numbers(large):
    train, held_out = load(large, "train"), load(large, "validation")
    assert len(train) == IMAGES - 1000
    assert train.nbytes == len(train) * BYTES
    assert sorted([*train.rows, *held_out.rows]) == list(range(IMAGES))
    everything = load(large, "train+validation")
    assert everything.x.base is not None  # a view of the file
    for images in (train, held_out, everything.take(slice(150, 40_000, 7))):
        some = images.take(slice(50, 300)).take(np.array([3, 1, 1]))
        assert list(some.rows) == [images.rows[53], images.rows[51], images.rows[51]]
        assert np.array_equal(some.x[:, 0, 0, 0], [row % 256 * (row in (3, 200)) for row in some.rows])
        assert np.array_equal(some.y, np.array(some.rows) % 200)


def test_a_training_reads_the_rows_of_its_batches(large, plan, tmp_path, monkeypatch):
    """It read a copy of all of them, twice: 193 GB each for ImageNet."""
    monkeypatch.setattr("harness.training.batches._ON_DEVICE_BYTES", 2**20)
    selection = Selection("validation", plan.columns.pgd("digits", "linf", 1))
    recipe = replace(run_of(plan, "nt").recipe, batch_size=32)
    run = run_of(plan, "nt", dataset=large, recipe=recipe, selection=selection)
    tracemalloc.start()
    try:
        batches, lab = Batches(run, CPU), make_lab(run, tmp_path, CPU)
        judge = Selector(run, CPU)
        batch = batches.at(batches.order(0), 0, 0)
        _, most = tracemalloc.get_traced_memory()  # of numpy's arrays; torch's are not traced
    finally:
        tracemalloc.stop()
    assert len(batch.x) == 32
    assert len(lab.sample.x) == len(lab.validation.x) == len(judge.images) == 1000
    print(f"{most / 1e6:.0f} MB of {IMAGES * BYTES / 1e6:.0f}")
    assert most < 50e6
