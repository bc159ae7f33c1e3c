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
from harness.data import Images, load
from harness.device import DEVICES, limit_threads, pick_device
from harness.errors import expected, run_command
from harness.identity import canonical, seed_from
from harness.plan import Plan
from harness.progress import Progress
from harness.records import Record, joined, read_shard, write_records, write_shard
from harness.runs import EvalRun, Probe
from harness.store import load_model


def evaluate_batch(
    model: nn.Module, probe: Probe, x: Tensor, y: Tensor, generator: torch.Generator
) -> Record:
    """Who survives. An example that is wrong as it stands is lost already and is not attacked."""
    with counting(model) as passes, torch.no_grad():
        predicted = model(x).argmax(dim=1)
        right = (predicted == y).nonzero().squeeze(1)
        if probe.attack is not None and len(right):
            attacked = perturb(probe.attack, model, x[right], y[right], generator=generator)
            predicted[right] = model(attacked).argmax(dim=1)
    return Record(
        (predicted == y).cpu().numpy(),
        predicted.cpu().numpy().astype(np.int16),
        passes.forward,
        passes.backward,
        passes.forward_examples,
        passes.backward_examples,
    )


def evaluate(evaluation: EvalRun, results: Path, device: torch.device) -> None:
    began = time.monotonic()
    model = load_model(results, evaluation.run).to(device)
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
        shards = []
        for count, first in enumerate(batches):
            path = paths.shard(results, evaluation.run, probe.id, count)
            if not path.exists():
                rows = images.take(slice(first, first + probe.batch_size))
                x = unit(torch.from_numpy(np.ascontiguousarray(rows.x)).to(device))
                y = torch.from_numpy(rows.y).to(device)
                seed = seed_from(probe.seed, probe.id, count)
                generator = torch.Generator(device).manual_seed(seed)
                write_shard(path, evaluate_batch(model, probe, x, y, generator))
            shards.append(read_shard(path))
            progress.update(count + 1)
        records[probe.id] = joined(shards)
    about = {
        "run": evaluation.run,
        "probes": {probe.id: canonical(probe) for probe in evaluation.probes},
        "sources": {name: images.source for name, images in sets.items()},
        "seconds": round(time.monotonic() - began, 2),
    }
    write_records(paths.records(results, evaluation.id), records, about)


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate one trained run of the grid.")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--run", required=True, help="its id; `python -m harness.plan` lists them")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto", help=f"one of {', '.join(DEVICES)}")
    options = parser.parse_args()
    plan = Plan.read(options.scale, options.grid)
    run = plan.run(options.run)
    if run.id not in plan.evaluations:
        raise expected(
            "a run that a table evaluates", f"the mere parent {run.id}", "choose another"
        )
    evaluation = plan.evaluations[run.id]
    limit_threads(options.threads)
    evaluate(evaluation, options.results, pick_device(options.device))


if __name__ == "__main__":
    run_command(main)
