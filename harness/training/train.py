"""Train one run, resumably: `generalist-bench train --scale smoke --run ID`.

The batch of a step is a pure function of (run, epoch, step): nothing of the data order needs to be
saved, and a run continued from its checkpoint ends bitwise where an undisturbed one ends; on a GPU if
its recipe says `deterministic`. A checkpoint is written after each epoch, every ten minutes, and on
SIGTERM.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from harness.core import paths, process
from harness.core.files import sha256, write_arrays, write_whole
from harness.core.paths import canonical, seed_from
from harness.core.process import Cost, Progress, provenance
from harness.data.sets import SETS
from harness.machine import distributed
from harness.machine.device import autocast, compiled, placed
from harness.machine.synchronized import synchronize
from harness.models.networks import load_model, new_model
from harness.training.batches import Batches, seeded, whole
from harness.training.contracts import Clock, Lab, Training
from harness.training.curves import Curves, show
from harness.training.epochs import Position, Selector, Watcher, read_checkpoint, save_checkpoint
from harness.training.runs import Selection, Stretch, TrainRun
from harness.training.trunks import Judges, begun

_SAMPLE = 1000
_SAVE_SECONDS = 600.0  # an epoch of ImageNet is hours


def make_lab(run: TrainRun, results: Path, device: torch.device) -> Lab:
    entry, arithmetic = SETS[run.dataset], run.recipe.arithmetic
    channels_last = arithmetic.channels_last(device)
    seed, sample = seed_from(run.seed, "weights"), whole(run.dataset, "train", device, _SAMPLE)

    def fresh() -> nn.Module:
        model = new_model(run.network, entry.channels, entry.classes, seed)
        model = placed(model, device, channels_last)
        if run.recipe.compile:
            return compiled(model, sample.x[: run.recipe.batch_size])
        return synchronize(model) if distributed.is_together() else model

    parents = (load_model(results, parent) for parent in run.parents)
    return Lab(
        new_model=fresh,
        parents=tuple(placed(parent, device, channels_last) for parent in parents),
        num_classes=entry.classes,
        generator=lambda role: seeded(device, run.seed, role),
        device=device,
        validation=whole(run.dataset, "validation", device),
        sample=sample,
        arithmetic=arithmetic,
    )


def train(
    run: TrainRun | Stretch, results: Path, device: torch.device, curves: Curves | None = None
) -> None:
    """Train a run, or a stretch of one, to its end, from its checkpoint if it has one.

    `curves` is called with each row of its history: harness/training/curves.py.
    """
    stretch = Stretch.of(run)
    with stretch.run.recipe.arithmetic.applied():
        _train(LiveRun(stretch, results, device, curves))


def _train(live: "LiveRun") -> None:
    run = live.run
    try:
        for epoch in range(live.at.epoch, live.last):
            live.train_epoch(epoch)
            live.end_epoch(epoch)
        if live.leaves is not None:
            live.save(live.leaves)
            live.checkpoint.unlink(missing_ok=True)
            return
        if not distributed.leads():
            return
        with distributed.alone():
            last = live.training.deployed().state_dict()
    except process.Stopped:
        live.save()
        if not distributed.leads():  # the first process prints the error
            raise SystemExit(process.CODE) from None
        remedy = "start the same command again to continue from there"
        raise process.Stopped(f" after {live.at} of {run.id}", remedy) from None
    with process.held():  # what is left takes a moment
        live.finish(last)


class LiveRun:
    """A run while it trains: its data, networks, position and cost."""

    def __init__(
        self, stretch: Stretch, results: Path, device: torch.device, curves: Curves | None = None
    ) -> None:
        self.began, self.cost_before = Cost.now(), Cost()
        run, end, self.last = stretch.run, stretch.end, stretch.last
        self.given = [[owner.id, stretch.begin] for owner in stretch.owners]
        torch.manual_seed(seed_from(run.seed, "global"))  # for layers that draw, such as dropout
        self.run, self.results, self.device = run, results, device
        self.batches, lab = Batches(run, device), make_lab(run, results, device)
        self.training = run.method.start(lab)
        judged = run if end is None else replace(run, selection=Selection())
        self.selector, self.watcher = Selector(judged, device), Watcher(run, lab)
        self.judges = Judges(stretch, device) if stretch.judges else None
        self.at, self.checkpoint = Position(), paths.checkpoint(results, run.id, end)
        self.leaves = None if end is None else paths.state(results, run.id, end)
        self.epochs, self.steps = run.recipe.epochs, self.batches.steps_per_epoch
        self._resume(stretch)
        self.curves = curves if distributed.leads() else None
        for row in self.at.history:
            self._draw(row)
        done = self.at.epoch * self.steps + self.at.step
        self.progress = Progress(f"train {stretch.id}", self.last * self.steps, done)
        self.saved = time.monotonic()

    def _resume(self, stretch: Stretch) -> None:
        state = read_checkpoint(self.checkpoint, self.run, stretch.judges)
        if state is None and stretch.owners:
            state = begun(stretch, self.results, self.steps)
        if state is None:
            return
        self.training.load_state_dict(state["training"])
        self.at, self.selector.best = state["position"], state["best"] or self.selector.best
        if self.judges:
            self.judges.load(state["judged"])
        self.watcher.images = state.get("images", {})
        self.cost_before = Cost(**state.get("cost", {}))
        if distributed.leads():
            print(f"continuing {self.run.id} after {self.at}", flush=True)

    def train_epoch(self, epoch: int) -> None:
        """The steps of an epoch that are not done yet; a checkpoint from time to time."""
        order = self.batches.order(epoch)
        for step in range(self.at.step, self.steps):
            clock = Clock(epoch, step, self.epochs, self.steps)
            with process.held():  # the step and its position belong together
                reported = take_step(self.training, self.batches, order, clock)
                self.at = self.at.after_step(reported, self.steps)
            late = time.monotonic() - self.saved > _SAVE_SECONDS
            stop, late = distributed.any_process(process.requested(), late)
            if stop:
                raise process.Stopped
            if distributed.leads():
                self._show(clock)
            if late:
                self.save()

    def _show(self, clock: Clock) -> None:
        means = {name: value * self.steps / self.at.step for name, value in self.at.sums.items()}
        note = "  ".join(f"{name} {value:.4g}" for name, value in means.items())
        where = f"epoch {clock.epoch + 1}/{clock.epochs}"
        self.progress.update(clock.steps_done + 1, f"{where}  {note}")

    def end_epoch(self, epoch: int) -> None:
        """Measure the networks, then save a checkpoint unless this was the last epoch."""
        measured: dict[str, float] = {}
        if distributed.leads():
            with distributed.alone():
                last_step = Clock(epoch, self.steps - 1, self.epochs, self.steps)
                measured = self.selector.judge(self.training, epoch)
                if self.judges:
                    self.judges.judge(self.training, epoch)
                measured |= self.watcher.measure(self.training, last_step)
        self.at = self.at.after_epoch(measured)
        self._draw(self.at.history[-1])
        if self.at.epoch < self.last:
            self.save()

    def _draw(self, row: Mapping[str, float]) -> None:
        self.curves = self.curves and show(self.curves, row)

    def save(self, path: Path | None = None) -> None:
        """Write a checkpoint of this moment, or a state at `path`."""
        learned = self.training.state_dict()
        distributed.check_equal(learned)
        if distributed.leads():
            measured = {"best": self.selector.best, "images": self.watcher.images}
            others = {**measured, "cost": self._cost()}
            if self.judges:
                others["judged"] = self.judges.state()
            save_checkpoint(path or self.checkpoint, self.run, learned, self.at, others)
        distributed.wait()
        self.saved = time.monotonic()

    def _cost(self) -> dict[str, float]:
        return (self.cost_before + (Cost.now() - self.began)).as_json()

    def finish(self, last: dict[str, Tensor]) -> None:
        """Write all files of the trained run; `last` are the weights after the last epoch."""
        shown = {name: images.numpy() for name, images in self.watcher.images.items()}
        write_arrays(paths.trace(self.results, self.run.id), shown)
        del self.training  # ends the processes that it may have started: their time counts
        self.batches.images.stored.check_unchanged()
        best = self.selector.best
        if best["model"] is None:  # selection is `last`, or no epoch passed the gate
            best = {"epoch": self.run.recipe.epochs - 1, "model": last}
        kept = {name: value.cpu().contiguous() for name, value in best["model"].items()}
        weights = safetensors_bytes(kept)
        about = self._about(best["epoch"], weights)
        paths.write_description(self.results, self.run.id, about, self.at.history)
        write_whole(paths.model(self.results, self.run.id), weights)  # last: it says "trained"
        self.checkpoint.unlink(missing_ok=True)

    def _about(self, epoch: int, weights: bytes) -> dict[str, Any]:
        stored = self.batches.images.stored
        trained_on = {"images": len(stored.y), "source": stored.source, "sha256": stored.sha256}
        return {
            "id": self.run.id,
            "run": canonical(self.run),
            "deployed_epoch": epoch + 1,
            "sha256": sha256(weights),
            "trained_on": trained_on,
            **({"states": self.given} if self.given else {}),  # to start from, if they were there
            **self._cost(),
            "threads": torch.get_num_threads(),
            "processes": distributed.size(),
            "device": device_name(self.device),
            "arithmetic": self.run.recipe.arithmetic.as_json(self.device),
            "made": provenance(),
        }


def take_step(training: Training, batches: Batches, order: Tensor, clock: Clock) -> Mapping[str, float]:
    """One step on its batch; what it reports, as means over the whole batch."""
    with autocast(batches.device, batches.run.recipe.arithmetic.amp):
        reported = training.step(batches.at(order, clock.epoch, clock.step), clock)
    return distributed.batch_mean(reported)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
