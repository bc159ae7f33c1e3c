"""Evaluate one model: `python -m harness evaluate --scale smoke --run ID`.

Each probe is worked off batch by batch; a batch's record is written as soon as it is done, so a
killed job, or one that SIGTERM asks to leave, loses at most one batch, and a second start computes
only what is missing. The random stream of a batch depends on the probe and the batch alone, so the
order of work changes nothing; PGDs that differ in their steps only share it, and one run: PGD20 is a
snapshot of PGD100.

Several jobs can share the work: `--part 2/8` does every eighth batch, and the plain command, once all
parts are there, finds nothing missing, makes the trust checks and joins what they wrote.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.core import paths, stopping
from harness.core.identity import canonical, seed_from
from harness.core.progress import Cost, Progress
from harness.data import Images, load
from harness.evaluation.checks import EXAMPLES, Check, inspect
from harness.evaluation.parts import Part, write_part
from harness.evaluation.probing import evaluate_family
from harness.evaluation.records import Record, joined, read_shard, write_records, write_shard
from harness.grid.probes import EvalRun, Probe
from harness.training.batches import on_device


def images_of(evaluation: EvalRun) -> dict[str, Images]:
    return {
        name: load(name, "test") for name in dict.fromkeys(p.dataset for p in evaluation.probes)
    }


def worked_off(
    evaluation: EvalRun,
    model: nn.Module,
    weights: str,
    results: Path,
    sets: dict[str, Images],
    device: torch.device,
    part: Part,
) -> Iterator[tuple[str, Record, Cost]]:
    """Each record of a part's batches by its probe, and what it took in whichever sitting: read if it
    is there, else computed and written. Of PGDs that share a run the last bears the cost."""
    families: dict[str, list[Probe]] = defaultdict(list)
    for probe in sorted(evaluation.probes, key=lambda p: getattr(p.attack, "steps", 0)):
        alone = probe.heat  # maps take a run of their own
        families[probe.id if alone else probe.family].append(probe)
    turns = itertools.count()
    for number, family in enumerate(families.values()):
        one = family[0]
        names = " ".join(probe.id for probe in family)
        images = sets[one.dataset].take(slice(one.examples))
        batches = enumerate(range(0, len(images), one.batch_size))
        own = [batch for batch in batches if part.takes(next(turns))]
        which = f"  part {part}" if part.of > 1 else ""
        label = f"evaluate {evaluation.run}{which}  {number + 1}/{len(families)} {names}"
        progress = Progress(label, len(own))
        stamp = {"weights": weights, "images": images.source, "content": images.stored.content}
        for done, (count, first) in enumerate(own):
            files = {p.id: paths.shard(results, evaluation.run, p.id, count) for p in family}
            found = {i: read_shard(file, stamp) for i, file in files.items() if file.exists()}
            records = {i: shard for i, shard in found.items() if shard is not None}
            missing = [probe for probe in family if probe.id not in records]
            if missing:
                began = Cost.now()
                rows = images.take(slice(first, first + one.batch_size))
                x, y = on_device(rows, device)
                seed = seed_from(one.seed, one.family, count)
                generator = torch.Generator(device).manual_seed(seed)
                made = evaluate_family(model, missing, x, y, generator)
                images.stored.check_unchanged()
                costs = [Cost()] * (len(missing) - 1) + [Cost.now() - began]
                for probe, record, cost in zip(missing, made, costs, strict=True):
                    write_shard(files[probe.id], record, stamp, cost)
                    records[probe.id] = record, cost
            yield from ((i, record, cost) for i, (record, cost) in records.items())
            progress.update(done + 1)
            stopping.check()


def evaluate_part(
    evaluation: EvalRun,
    model: nn.Module,
    weights: str,
    results: Path,
    device: torch.device,
    part: Part,
) -> None:
    """See to it that a part's batches are there; `evaluate` joins them with the others'."""
    sets = images_of(evaluation)
    records = worked_off(evaluation, model, weights, results, sets, device, part)
    write_part(results, evaluation, part, weights, sum(1 for _ in records))


def evaluate(
    evaluation: EvalRun,
    model: nn.Module,
    weights: str,
    results: Path,
    device: torch.device,
    trained: dict[str, Any] | None = None,
) -> None:
    """Write the records of a model in eval mode, computing only what is not there yet.

    `weights` is a checksum: records of other weights, or of other images, do not count.
    `trained` is what is known of the training and kept with the records.
    """
    sets = images_of(evaluation)
    shards: dict[str, list[Record]] = defaultdict(list)
    spent = Cost()
    for name, record, cost in worked_off(evaluation, model, weights, results, sets, device, Part()):
        shards[name].append(record)
        spent += cost
    began = Cost.now()
    checks = checked(model, evaluation, sets, device)
    spent += Cost.now() - began
    about = {
        "run": evaluation.run,
        "checks": [check.as_json() for check in checks],
        "probes": {probe.id: canonical(probe) for probe in evaluation.probes},
        "sources": {name: images.source for name, images in sets.items()},
        "sha256": {name: images.stored.sha256 for name, images in sets.items()},
        **spent.as_json(),
        "trained": trained,
    }
    plain = {
        probe.dataset: probe.examples for probe in evaluation.probes if "/" not in probe.dataset
    }
    labels = {name: sets[name].y[:examples].astype(np.int16) for name, examples in plain.items()}
    records = {name: joined(own) for name, own in shards.items()}
    write_records(paths.records(results, evaluation.id), records, about, labels)


def checked(
    model: nn.Module, evaluation: EvalRun, sets: dict[str, Images], device: torch.device
) -> list[Check]:
    """The trust checks, on the data set and in the norms that the model is evaluated with."""
    first = evaluation.probes[0].dataset
    attacks = [probe.attack for probe in evaluation.probes if probe.dataset == first]
    balls = [stage.balls[0] for attack in attacks if attack for stage in attack.stages]
    images = sets[first].take(slice(EXAMPLES))
    pixels, y = torch.from_numpy(np.ascontiguousarray(images.x)), torch.from_numpy(images.y)
    by_norm = {ball.norm: ball for ball in reversed(balls)}
    return inspect(model, pixels.to(device), y.to(device), by_norm)
