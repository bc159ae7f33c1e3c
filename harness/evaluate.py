"""Evaluate one model: `python -m harness.evaluate --scale smoke --run ID`.

Each probe is worked off batch by batch; a batch's record is written as soon as it is done, so a
killed job loses at most one batch, and a second start computes only what is missing. The random
stream of a batch depends on the probe and the batch alone, so the order of work changes nothing; PGDs
that differ in their steps only share it, and one run: PGD20 is a snapshot of PGD100.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness import paths
from harness.attacks import PGD, Passes, counting, perturb, snapshots
from harness.augment import unit
from harness.autoattack import listening
from harness.checks import EXAMPLES, Check, inspect
from harness.data import Images, load
from harness.data.sets import SETS
from harness.data.sources import at_hand
from harness.descriptions import description
from harness.device import DEVICES, limit_threads, pick_device, placed
from harness.errors import expected, run_command
from harness.gradcam import gradcam
from harness.identity import canonical, seed_from
from harness.plan import planned
from harness.progress import Progress
from harness.provenance import cpu_seconds
from harness.records import Record, joined, read_shard, write_records, write_shard
from harness.runs import EvalRun, Probe, TrainRun
from harness.store import load_model


def evaluate_batch(
    model: nn.Module, probe: Probe, x: Tensor, y: Tensor, generator: torch.Generator
) -> Record:
    """Who survives. An example that is wrong as it stands is lost already and is not attacked.

    An attack of several stages tries each on those who survived the ones before. Attacks climb the
    folded twin; every verdict is the network's own.
    """
    looked_at = x.clone() if probe.heat else x
    with counting(model) as passes, listening() as warnings, torch.no_grad():
        predicted = model(x).argmax(dim=1)
        broken_by = torch.where(predicted == y, -1, -2).to(torch.int8)
        for number, stage in enumerate(probe.attack.stages if probe.attack else ()):
            standing = (broken_by == -1).nonzero().squeeze(1)
            if not len(standing):
                break
            rows, labels = x[standing], y[standing]
            attacked = perturb(stage, model, rows, labels, generator=generator)
            predicted[standing] = model(attacked).argmax(dim=1)
            if probe.heat:
                looked_at[standing] = attacked
            broken_by[standing[predicted[standing] != labels]] = number
    record = _record(predicted, broken_by, passes, warnings)
    return replace(record, heat=heat(model, looked_at, predicted)) if probe.heat else record


def evaluate_family(
    model: nn.Module, family: list[Probe], x: Tensor, y: Tensor, generator: torch.Generator
) -> list[Record]:
    """What `evaluate_batch` says of each probe, where PGDs of rising steps share the longest one's run.

    Each record states the passes that its own attack would have made alone.
    """
    attacks = [probe.attack for probe in family if isinstance(probe.attack, PGD)]
    if len(family) == 1:
        return [evaluate_batch(model, family[0], x, y, generator)]
    with counting(model) as passes, torch.no_grad():
        natural = model(x).argmax(dim=1)
        standing = (natural == y).nonzero().squeeze(1)
        if not len(standing):
            return [evaluate_batch(model, probe, x, y, generator) for probe in family]
        rows, labels = x[standing], y[standing]
        taken = [
            (attacked, replace(passes))
            for attacked in snapshots(attacks, model, rows, labels, generator=generator)
        ]
    records = []
    for attacked, before in taken:
        with counting(model) as last, torch.no_grad():
            predicted, broken_by = natural.clone(), torch.where(natural == y, -1, -2)
            predicted[standing] = model(attacked).argmax(dim=1)
            broken_by[standing[predicted[standing] != labels]] = 0
        records.append(_record(predicted, broken_by, before + last))
    return records


def _record(
    predicted: Tensor, broken_by: Tensor, passes: Passes, warnings: Iterable[str] = ()
) -> Record:
    return Record(
        (broken_by == -1).cpu().numpy(),
        predicted.cpu().numpy().astype(np.int16),
        broken_by.cpu().numpy().astype(np.int8),
        **asdict(passes),
        warnings=tuple(sorted(warnings)),
    )


def heat(model: nn.Module, x: Tensor, predicted: Tensor) -> np.ndarray:
    """Grad-CAM at the size of the features: a reader can always enlarge it."""
    maps = gradcam(model, x, predicted, enlarge=False).squeeze(1)
    return (255 * maps).round().to(torch.uint8).cpu().numpy()


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
    began = time.monotonic()
    sets: dict[str, Images] = {}
    for probe in evaluation.probes:
        if probe.dataset not in sets:
            sets[probe.dataset] = load(probe.dataset, "test")
    families: dict[str, list[Probe]] = defaultdict(list)
    for probe in sorted(evaluation.probes, key=lambda p: getattr(p.attack, "steps", 0)):
        families[probe.id if probe.heat else probe.family].append(
            probe
        )  # maps take a run of their own
    records: dict[str, Record] = {}
    for number, family in enumerate(families.values()):
        one = family[0]
        names = " ".join(probe.id for probe in family)
        images = sets[one.dataset].take(slice(one.examples))
        batches = range(0, len(images), one.batch_size)
        label = f"evaluate {evaluation.run}  {number + 1}/{len(families)} {names}"
        progress = Progress(label, len(batches))
        stamp = {"weights": weights, "images": images.source, "content": images.stored.content}
        shards: dict[str, list[Record]] = defaultdict(list)
        for count, first in enumerate(batches):
            files = {p.id: paths.shard(results, evaluation.run, p.id, count) for p in family}
            found = {i: read_shard(file, stamp) for i, file in files.items() if file.exists()}
            done = {i: record for i, record in found.items() if record is not None}
            missing = [probe for probe in family if probe.id not in done]
            if missing:
                rows = images.take(slice(first, first + one.batch_size))
                x = unit(torch.from_numpy(np.ascontiguousarray(rows.x)).to(device))
                y = torch.from_numpy(rows.y).to(device)
                seed = seed_from(one.seed, one.family, count)
                generator = torch.Generator(device).manual_seed(seed)
                made = evaluate_family(model, missing, x, y, generator)
                images.stored.check_unchanged()
                for probe, record in zip(missing, made, strict=True):
                    write_shard(files[probe.id], record, stamp)
                    done[probe.id] = record
            for probe in family:
                shards[probe.id].append(done[probe.id])
            progress.update(count + 1)
        records |= {probe_id: joined(own) for probe_id, own in shards.items()}
    about = {
        "run": evaluation.run,
        "checks": [check.as_json() for check in checked(model, evaluation, sets, device)],
        "probes": {probe.id: canonical(probe) for probe in evaluation.probes},
        "sources": {name: images.source for name, images in sets.items()},
        "sha256": {name: images.stored.sha256 for name, images in sets.items()},
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": cpu_seconds(),
        "trained": trained,
    }
    plain = {
        probe.dataset: probe.examples for probe in evaluation.probes if "/" not in probe.dataset
    }
    labels = {name: sets[name].y[:examples].astype(np.int16) for name, examples in plain.items()}
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


def refuse_other_images(run: TrainRun, about: dict[str, Any]) -> None:
    """Weights that were learnt from other images than the set has now say nothing about it."""
    known, now = about.get("trained_on"), at_hand(SETS[run.dataset], "train")
    if known and now is not None and known["sha256"] != now.sha256:
        raise expected(
            f"the images that {run.id} was trained on in {run.dataset}'s training split",
            "others in their place",
            "put the old ones back, or delete the folder of the model to train it again",
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Evaluate a trained run of the grid (--run), or any torch classifier (--model)."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", help="a run's id; harness.plan --runs lists them")
    what.add_argument("--model", help="path.py:function, returning a network for images in [0,1]")
    parser.add_argument("--weights", type=Path, help="with --model: a safetensors file for it")
    parser.add_argument("--data", help="with --model: the data set, such as cifar10")
    parser.add_argument("--attacks", default="all", help="with --model: columns by comma, or all")
    parser.add_argument("--examples", type=int, help="with --model: so many test images")
    parser.add_argument("--scale", help="smoke for --run, paper for --model, unless given")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto", help=f"one of {', '.join(DEVICES)}")
    options = parser.parse_args()
    limit_threads(options.threads)
    device = pick_device(options.device)
    if options.model:
        from harness.external import evaluate_external

        evaluate_external(options, device)
        return
    plan = planned(options.scale or "smoke", options.grid)
    run = plan.run(options.run)
    if run.id not in plan.evaluations:
        raise expected(
            "a run that a table evaluates", f"the mere parent {run.id}", "choose another"
        )
    model = placed(load_model(options.results, run.id), device)
    about = description(options.results, run.id)
    refuse_other_images(run, about)
    trained = {key: about.get(key) for key in ("seconds", "device", "threads", "trained_on")}
    wanted = plan.evaluations[run.id]
    evaluate(wanted, model, about["sha256"], options.results, device, trained)


if __name__ == "__main__":
    run_command(main)
