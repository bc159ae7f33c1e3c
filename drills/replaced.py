"""Other images under the same name: between two batches, between two starts, after the training,
and for only some of a table's numbers."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from drills import Attempt, LostError, Try, demand
from drills.commands import check_sentence, sentence
from drills.ground import Ground
from harness.core import paths
from harness.core.errors import UserError
from harness.core.files import write_arrays
from harness.core.paths import read_description
from harness.data import load
from harness.data.sets import SETS
from harness.evaluation.records import read_evaluation
from harness.grid.columns import EvalRun

_IMAGES = {"train": 300, "test": 60}


def write_mnist(folder: Path, random: Random) -> None:
    """A small set in MNIST's file format: some of the 8x8 digits, enlarged, in random order."""
    for split, count in _IMAGES.items():
        digits = load("digits", split)
        rows = np.random.default_rng(random.getrandbits(32)).permutation(len(digits))[:count]
        x = np.pad(digits.x[rows, 0].repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
        for file, array in zip(SETS["mnist"].files[split], (x, digits.y[rows]), strict=True):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(header + array.astype(np.uint8).tobytes())


class Meddled:
    """Calls a function before the n-th batch of a network."""

    def __init__(self, model: Any, calls: int, meddle: Callable[[], None]) -> None:
        self.left, self.meddle = calls, meddle
        self.hook = model.register_forward_pre_hook(self)

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.meddle()


class StopError(Exception):
    pass


def replaced(ground: Ground) -> Attempt:
    """images replaced under the same name"""
    import torch

    from harness.evaluation.evaluate import evaluate
    from harness.jobs.evaluate import refuse_other_images
    from harness.models.networks import load_model
    from harness.training.train import train

    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    nt = ground.run_of("nt")
    run = dataclasses.replace(nt, dataset="mnist")
    probes = ground.plan.evaluations[nt.id].probes
    linf = next(probe for probe in probes if "pgd" in probe.id)
    wanted = EvalRun(run.id, (dataclasses.replace(linf, dataset="mnist", batch_size=20),))

    def flags(results: Path, about: dict) -> dict[str, np.ndarray]:
        evaluate(wanted, load_model(results, run.id), about["sha256"], results, cpu, {})
        records, _ = read_evaluation(results, wanted)
        return {name: record.predicted for name, record in records.items()}

    def between_batches(this: Try, results: Path, about: dict) -> str:
        model, _ = load_model(results, run.id), load("mnist", "test")
        (images,) = (this.folder / "cache").glob("mnist-test-*/x.npy")

        def meddle() -> None:
            data = bytearray(images.read_bytes())
            data[-5000:] = bytes(5000)
            images.write_bytes(data)

        Meddled(model, this.random.randint(2, 40), meddle)
        demand_refusal(lambda: evaluate(wanted, model, about["sha256"], results, cpu, {}))
        demand(not paths.records(results, wanted.id).exists(), "records of mixed images")
        return "between two batches: refused"

    def between_starts(this: Try, results: Path, about: dict) -> str:
        model = load_model(results, run.id)

        def meddle() -> None:
            raise StopError

        Meddled(model, this.random.randint(30, 60), meddle)
        try:
            evaluate(wanted, model, about["sha256"], results, cpu, {})
            raise LostError("it was not interrupted")
        except StopError:
            write_mnist(this.folder, this.random)
        mixed = flags(results, about)
        for path in (results / "records").rglob("*.npz"):
            path.unlink()
        fresh = flags(results, about)
        same = all(np.array_equal(mixed[name], fresh[name]) for name in fresh)
        demand(same, "shards of the old images were kept")
        return "between two starts: computed again"

    def after_training(this: Try, results: Path, about: dict) -> str:
        write_mnist(this.folder, this.random)
        demand_refusal(lambda: refuse_other_images(run.id, about))
        return "after the training: refused"

    def in_a_table(this: Try, results: Path, about: dict) -> str:
        """One model evaluated elsewhere, where the set had other images."""
        folder = ground.copy(this.folder / "table")
        path = this.random.choice(sorted((folder / "results" / "records").glob("*.npz")))
        arrays = dict(np.load(path))
        text = arrays["about"].tobytes().decode()
        known = json.loads(text)["sha256"]["digits"]
        other = text.replace(known, "0" * len(known)).encode()
        write_arrays(path, {**arrays, "about": np.frombuffer(other, np.uint8)})
        line = sentence(ground.make_table(folder))
        demand("test images of digits" in line, f"another sentence: {line}")
        path.unlink()
        ground.check_all(folder)
        return "behind one number of a table: refused, right after its remedy"

    cases = [between_batches, between_starts, after_training, in_a_table]

    def attempt(this: Try) -> str:
        os.environ["GENERALIST_DATA"] = str(this.folder)
        try:
            write_mnist(this.folder, this.random)
            results = this.folder / "results"
            train(run, results, cpu)
            return cases[this.number % len(cases)](this, results, read_description(results, run.id))
        finally:
            del os.environ["GENERALIST_DATA"]

    return attempt


def demand_refusal(act: Callable[[], object]) -> None:
    try:
        act()
    except UserError as error:
        check_sentence(str(error))
        return
    raise LostError("other images were taken for the same")
