"""Train one run, resumably: `python -m harness train --scale smoke --run ID`.

The batch of a step is a pure function of (run, epoch, step): nothing of the data order needs to be
saved, and a run continued from its checkpoint ends bitwise where an undisturbed one ends. A checkpoint
is written after each epoch, every ten minutes, and when SIGTERM asks the run to leave.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from harness.core import paths, stopping
from harness.core.files import sha256, write_arrays, write_whole
from harness.core.identity import canonical, seed_from
from harness.core.paths import write_description
from harness.core.progress import Cost, Progress, provenance
from harness.data.cache import Stored
from harness.data.sets import SETS
from harness.machine import distributed
from harness.machine.device import autocast, compiled, placed
from harness.models.networks import load_model, new_model
from harness.training.batches import Batches, seeded, whole
from harness.training.checkpoint import Position, read_checkpoint, save_checkpoint
from harness.training.contracts import Clock, Lab, Training
from harness.training.epochs import Selector, Watcher
from harness.training.runs import TrainRun

_SAMPLE = 1000
_KEEP_SECONDS = 600.0  # an epoch of ImageNet is hours


def make_lab(run: TrainRun, results: Path, device: torch.device) -> Lab:
    entry = SETS[run.dataset]
    seed, sample = seed_from(run.seed, "weights"), whole(run.dataset, "train", device, _SAMPLE)

    def fresh() -> nn.Module:
        model = placed(new_model(run.network, entry.channels, entry.classes, seed), device)
        if run.recipe.compile:
            return compiled(model, sample.x[: run.recipe.batch_size])
        return distributed.spread(model)

    return Lab(
        new_model=fresh,
        parents=tuple(placed(load_model(results, parent), device) for parent in run.parents),
        num_classes=entry.classes,
        generator=lambda role: seeded(device, run.seed, role),
        device=device,
        validation=whole(run.dataset, "validation", device),
        sample=sample,
        amp=run.recipe.amp is not None,
    )


def train(run: TrainRun, results: Path, device: torch.device) -> None:
    began = Cost.now()
    torch.manual_seed(seed_from(run.seed, "global"))  # for layers that draw, such as dropout
    batches, lab = Batches(run, device), make_lab(run, results, device)
    training, selector, watcher = run.method.start(lab), Selector(run, device), Watcher(run, lab)
    at, before = Position(), Cost()
    checkpoint = paths.checkpoint(results, run.id)
    state = read_checkpoint(checkpoint, run, device)
    if state is not None:
        training.load_state_dict(state["training"])
        at, selector.best = state["position"], state["best"]
        watcher.images = state.get("images", {})
        before = Cost(**state.get("cost", {}))
        if distributed.leads():
            print(f"continuing {run.id} after {at}", flush=True)

    def spent() -> dict[str, float]:
        return (before + (Cost.now() - began)).as_json()

    def keep(training: Training) -> None:
        learned = training.state_dict()
        distributed.compare(learned)
        if distributed.leads():
            beside = {"best": selector.best, "images": watcher.images, "cost": spent()}
            save_checkpoint(checkpoint, run, learned, at, beside)
        distributed.wait()

    epochs, steps, kept = run.recipe.epochs, batches.steps_per_epoch, time.monotonic()
    progress = Progress(f"train {run.id}", epochs * steps, at.epoch * steps + at.step)
    try:
        for epoch in range(at.epoch, epochs):
            order = batches.order(epoch)
            for step in range(at.step, steps):
                clock = Clock(epoch, step, epochs, steps)
                with stopping.held():
                    with distributed.drawing(), autocast(device, lab.amp):
                        reported = training.step(batches.at(order, epoch, step), clock)
                    at = at.after_step(distributed.mean(reported), steps)
                late = time.monotonic() - kept > _KEEP_SECONDS
                leave, late = distributed.agree(stopping.asked(), late)
                if leave:
                    raise stopping.Stopped
                note = "  ".join(f"{n} {v * steps / at.step:.4g}" for n, v in at.sums.items())
                if distributed.leads():
                    progress.update(clock.steps_done + 1, f"epoch {epoch + 1}/{epochs}  {note}")
                if late:
                    keep(training)
                    kept = time.monotonic()
            seen: dict[str, float] = {}
            if distributed.leads():
                with distributed.alone():
                    last_step = Clock(epoch, steps - 1, epochs, steps)
                    seen = {**selector.judge(training, epoch), **watcher.look(training, last_step)}
            at = at.after_epoch(seen)
            if at.epoch < epochs:
                keep(training)
                kept = time.monotonic()
        if not distributed.leads():
            return
        with distributed.alone():
            last = training.deployed().state_dict()
    except stopping.Stopped:
        keep(training)
        if not distributed.leads():  # the first one speaks for all
            raise SystemExit(stopping.CODE) from None
        raise stopping.Stopped(
            f" after {at} of {run.id}", "start the same command again to continue from there"
        ) from None
    with stopping.held():  # what is left takes a moment
        shown = {name: images.numpy() for name, images in watcher.images.items()}
        write_arrays(paths.trace(results, run.id), shown)
        del training  # processes that it may have started end here, so that their time counts
        batches.stored.check_unchanged()
        deploy(run, results, last, selector, at.history, spent(), batches.stored)
        checkpoint.unlink(missing_ok=True)


def deploy(
    run: TrainRun,
    results: Path,
    last: dict[str, Tensor],
    selector: Selector,
    history: Sequence[Mapping[str, float]],
    spent: dict[str, float],
    trained_on: Stored,
) -> None:
    """Write the model, its history and its description; the model comes last."""
    chosen, epoch = selector.best["model"], selector.best["epoch"]
    if chosen is None:  # selection is `last`, or no epoch passed the gate
        chosen, epoch = last, run.recipe.epochs - 1
    weights = safetensors_bytes({name: value.cpu().contiguous() for name, value in chosen.items()})
    about = {
        "id": run.id,
        "run": canonical(run),
        "deployed_epoch": epoch + 1,
        "sha256": sha256(weights),
        "trained_on": {
            "images": len(trained_on.y),
            "source": trained_on.source,
            "sha256": trained_on.sha256,
        },
        **spent,
        "threads": torch.get_num_threads(),
        "device": device_name(selector.device),
        "made": provenance(),
    }
    write_description(results, run.id, about, history)
    write_whole(paths.model(results, run.id), weights)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def rehearse(run: TrainRun, results: Path, device: torch.device, steps: int) -> None:
    """A few real steps of a run, its cost printed, nothing written."""
    batches, lab = Batches(run, device), make_lab(run, results, device)
    training, order = run.method.start(lab), batches.order(0)
    for step in range(steps):
        began = time.monotonic()
        clock = Clock(0, step, run.recipe.epochs, batches.steps_per_epoch)
        with distributed.drawing(), autocast(device, lab.amp):
            reported = training.step(batches.at(order, 0, step), clock)
        reported, seconds = distributed.mean(reported), time.monotonic() - began
        if not distributed.leads():
            continue
        values = ", ".join(f"{name} {value:.4g}" for name, value in reported.items())
        print(f"step {step + 1}: {seconds:.2f} s, {values}", flush=True)
    if not distributed.leads():
        return
    hours = seconds * run.recipe.epochs * batches.steps_per_epoch / 3600
    print(f"{len(batches.y)} images; at this pace the whole run takes {hours:.1f} hours")
