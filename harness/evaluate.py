"""Evaluate one model: `python -m harness.evaluate --scale smoke --run ID`.

Each probe is worked off batch by batch; a batch's record is written as soon as it is done, so a
killed job loses at most one batch, and a second start computes only what is missing. The random
stream of a batch depends on the probe and the batch alone, so the order of work changes nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from harness import paths
from harness.attacks import counting, perturb
from harness.augment import unit
from harness.autoattack import listening
from harness.checks import EXAMPLES, Check, inspect
from harness.data import Images, load
from harness.device import DEVICES, limit_threads, pick_device
from harness.errors import expected, run_command
from harness.identity import canonical, seed_from
from harness.plan import Plan
from harness.progress import Progress
from harness.provenance import cpu_seconds
from harness.records import Record, joined, read_shard, write_records, write_shard
from harness.runs import EvalRun, Probe
from harness.store import checksum, load_model


def evaluate_batch(
    model: nn.Module, probe: Probe, x: Tensor, y: Tensor, generator: torch.Generator
) -> Record:
    """Who survives. An example that is wrong as it stands is lost already and is not attacked.

    An attack of several stages tries each on those who survived the ones before.
    """
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
            broken_by[standing[predicted[standing] != labels]] = number
    return Record(
        (predicted == y).cpu().numpy(),
        predicted.cpu().numpy().astype(np.int16),
        broken_by.cpu().numpy(),
        passes.forward,
        passes.backward,
        passes.forward_examples,
        passes.backward_examples,
        tuple(sorted(warnings)),
    )


def evaluate(
    evaluation: EvalRun, model: nn.Module, weights: str, results: Path, device: torch.device
) -> None:
    """Write the records of a model in eval mode, computing only what is not there yet.

    `weights` is a checksum: records of other weights, or of images from another source, do not count.
    """
    began = time.monotonic()
    sets: dict[str, Images] = {}
    for probe in evaluation.probes:
        if probe.dataset not in sets:
            sets[probe.dataset] = load(probe.dataset, "test")
    records = {}
    for number, probe in enumerate(evaluation.probes):
        label = f"evaluate {evaluation.run}  {number + 1}/{len(evaluation.probes)} {probe.id}"
        images = sets[probe.dataset].take(slice(probe.examples))
        batches = range(0, len(images), probe.batch_size)
        progress = Progress(label, len(batches))
        stamp = {"weights": weights, "images": images.source}
        shards = []
        for count, first in enumerate(batches):
            path = paths.shard(results, evaluation.run, probe.id, count)
            record = read_shard(path, stamp) if path.exists() else None
            if record is None:
                rows = images.take(slice(first, first + probe.batch_size))
                x = unit(torch.from_numpy(np.ascontiguousarray(rows.x)).to(device))
                y = torch.from_numpy(rows.y).to(device)
                seed = seed_from(probe.seed, probe.id, count)
                generator = torch.Generator(device).manual_seed(seed)
                record = evaluate_batch(model, probe, x, y, generator)
                write_shard(path, record, stamp)
            shards.append(record)
            progress.update(count + 1)
        records[probe.id] = joined(shards)
    about = {
        "run": evaluation.run,
        "checks": [check.as_json() for check in checked(model, evaluation, sets, device)],
        "probes": {probe.id: canonical(probe) for probe in evaluation.probes},
        "sources": {name: images.source for name, images in sets.items()},
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": cpu_seconds(),
    }
    write_records(paths.records(results, evaluation.id), records, about)


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
    plan = Plan.read(options.scale or "smoke", options.grid)
    run = plan.run(options.run)
    if run.id not in plan.evaluations:
        raise expected(
            "a run that a table evaluates", f"the mere parent {run.id}", "choose another"
        )
    model = load_model(options.results, run.id).to(device)
    weights = checksum(options.results, run.id)
    evaluate(plan.evaluations[run.id], model, weights, options.results, device)


if __name__ == "__main__":
    run_command(main)
