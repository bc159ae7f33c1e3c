"""Train one run, resumably: `python -m harness.train --scale smoke --run ID`.

The batch of a step is a pure function of (run, epoch, step): nothing of the data order needs to be
saved, and a run continued from its checkpoint ends bitwise where an undisturbed one ends.
"""

from __future__ import annotations

import argparse
import io
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor, nn

from harness import paths
from harness.attacks import perturb
from harness.augment import augmented, unit
from harness.contracts import Batch, Clock, Lab, Training
from harness.data import load
from harness.data.cache import Stored
from harness.data.sets import SETS
from harness.descriptions import write_description
from harness.device import DEVICES, autocast, compiled, limit_threads, pick_device, placed
from harness.errors import UserError, run_command
from harness.files import only_one, read_sealed, sha256, write_sealed, write_whole
from harness.identity import canonical, seed_from
from harness.models import new_model
from harness.plan import planned
from harness.progress import Progress
from harness.provenance import cpu_seconds, provenance
from harness.records import write_arrays
from harness.runs import TrainRun
from harness.store import load_model
from harness.watch import Watcher, accuracy

_SAMPLE = 1000


class Batches:
    """The training set on the device; the batch of any step can be asked for directly."""

    def __init__(self, run: TrainRun, device: torch.device) -> None:
        # The papers selected on test data and so could train on everything.
        split = "train+validation" if run.selection.use == "paper-test" else "train"
        images = load(run.dataset, split).take(slice(run.recipe.examples))
        self.run, self.device, self.stored = run, device, images.stored
        self.x = torch.from_numpy(images.x).to(device)
        self.y = torch.from_numpy(images.y).to(device)
        self.steps_per_epoch = -(-len(images) // run.recipe.batch_size)

    def order(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_from(self.run.seed, "order", epoch))
        return torch.randperm(len(self.y), generator=generator).to(self.device)

    def at(self, order: Tensor, epoch: int, step: int) -> Batch:
        size = self.run.recipe.batch_size
        index = order[step * size : (step + 1) * size]
        generator = seeded(self.device, self.run.seed, "augment", epoch, step)
        x = augmented(self.x[index], self.run.recipe.augment, generator)
        return Batch(x, self.y[index], index)


def seeded(device: torch.device, *parts: int | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed_from(*parts))


def whole(dataset: str, split: str, device: torch.device, examples: int | None = None) -> Batch:
    """A split as one batch, without augmentation."""
    images = load(dataset, split).take(slice(examples))
    x, y = torch.from_numpy(images.x).to(device), torch.from_numpy(images.y).to(device)
    return Batch(unit(x), y, torch.arange(len(y), device=device))


def make_lab(run: TrainRun, results: Path, device: torch.device) -> Lab:
    entry = SETS[run.dataset]
    seed, sample = seed_from(run.seed, "weights"), whole(run.dataset, "train", device, _SAMPLE)

    def fresh() -> nn.Module:
        model = placed(new_model(run.network, entry.channels, entry.classes, seed), device)
        return compiled(model, sample.x[: run.recipe.batch_size]) if run.recipe.compile else model

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


class Selector:
    """Keeps the best epoch, if the run deploys the best rather than the last."""

    def __init__(self, run: TrainRun, lab: Lab) -> None:
        self.selection, self.seed = run.selection, run.seed
        self.judges = (
            whole(run.dataset, "test", lab.device)
            if run.selection.use == "paper-test"
            else lab.validation
        )
        self.best: dict[str, Any] = {"epoch": None, "score": -1.0, "model": None}

    def judge(self, training: Training, epoch: int) -> dict[str, float]:
        if self.selection.attack is None:
            return {}
        model = training.deployed()  # asked for only here: some methods choose it at a cost
        generator = seeded(self.judges.x.device, self.seed, "select", epoch)
        x, y = self.judges.x, self.judges.y
        adversarial = perturb(self.selection.attack, model, x, y, generator=generator)
        natural, robust = accuracy(model, x, y), accuracy(model, adversarial, y)
        score = natural + robust
        if score > self.best["score"] and natural >= (self.selection.gate or 0):
            state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.best = {"epoch": epoch, "score": score, "model": state}
        return {"natural": natural, "robust": robust}


def save_checkpoint(path: Path, run: TrainRun, training: Training, progress: dict) -> None:
    buffer = io.BytesIO()
    torch.save({"run": run.id, "training": training.state_dict(), **progress}, buffer)
    write_sealed(path, buffer.getvalue())


def read_checkpoint(path: Path, run: TrainRun, device: torch.device) -> dict[str, Any] | None:
    if not path.exists():
        return None
    payload = io.BytesIO(read_sealed(path, "checkpoint"))
    try:
        state = torch.load(payload, map_location=device, weights_only=True)
        owner = state["run"]
    except Exception as error:  # what is no checkpoint, or a hostile one, fails in many ways
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"expected nothing but the tensors of a checkpoint in {path}, found something else "
            f"({type(error).__name__}: {reason}); delete the file."
        ) from None
    if owner != run.id:
        raise UserError(
            f"expected a checkpoint of {run.id}, found one of {owner} in {path}; delete it."
        )
    return state


def train(run: TrainRun, results: Path, device: torch.device) -> None:
    began = time.monotonic()
    torch.manual_seed(seed_from(run.seed, "global"))  # for layers that draw, such as dropout
    batches, lab = Batches(run, device), make_lab(run, results, device)
    training, selector, watcher = run.method.start(lab), Selector(run, lab), Watcher(run, lab)
    history: list[dict[str, float]] = []
    first_epoch, before = 0, {"seconds": 0.0, "cpu_seconds": 0.0}
    checkpoint = paths.checkpoint(results, run.id)
    state = read_checkpoint(checkpoint, run, device)
    if state is not None:
        training.load_state_dict(state["training"])
        selector.best, history = state["best"], state["history"]
        watcher.images = state.get("images", {})
        first_epoch, before = state["epoch"], {name: state.get(name, 0.0) for name in before}
        print(f"continuing {run.id} after epoch {first_epoch}", flush=True)

    def spent() -> dict[str, float]:
        now = {"seconds": time.monotonic() - began, "cpu_seconds": cpu_seconds()}
        return {name: round(before[name] + value, 2) for name, value in now.items()}

    epochs, steps = run.recipe.epochs, batches.steps_per_epoch
    progress = Progress(f"train {run.id}", epochs * steps, first_epoch * steps)
    for epoch in range(first_epoch, epochs):
        order = batches.order(epoch)
        sums: dict[str, float] = defaultdict(float)
        for step in range(steps):
            clock = Clock(epoch, step, epochs, steps)
            with autocast(device, lab.amp):
                reported = training.step(batches.at(order, epoch, step), clock)
            for name, value in reported.items():
                sums[name] += value / steps
            note = "  ".join(
                f"{name} {value * steps / (step + 1):.4g}" for name, value in sums.items()
            )
            progress.update(clock.steps_done + 1, f"epoch {epoch + 1}/{epochs}  {note}")
        judged = selector.judge(training, epoch)
        history.append({"epoch": epoch + 1, **sums, **judged, **watcher.look(training, epoch)})
        if epoch + 1 < epochs:
            position = {"epoch": epoch + 1, "best": selector.best, "history": history}
            position["images"] = watcher.images
            save_checkpoint(checkpoint, run, training, position | spent())

    kept = {name: images.numpy() for name, images in watcher.images.items()}
    write_arrays(paths.trace(results, run.id), kept)
    last = training.deployed().state_dict()
    del training  # processes that it may have started end here, so that their time counts
    batches.stored.check_unchanged()
    deploy(run, results, last, selector, history, spent(), batches.stored)
    checkpoint.unlink(missing_ok=True)


def deploy(
    run: TrainRun,
    results: Path,
    last: dict[str, Tensor],
    selector: Selector,
    history: list[dict[str, float]],
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
        "device": device_name(selector.judges.x.device),
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
        with autocast(device, lab.amp):
            reported = training.step(batches.at(order, 0, step), clock)
        seconds = time.monotonic() - began
        values = ", ".join(f"{name} {value:.4g}" for name, value in reported.items())
        print(f"step {step + 1}: {seconds:.2f} s, {values}", flush=True)
    hours = seconds * run.recipe.epochs * batches.steps_per_epoch / 3600
    print(f"{len(batches.y)} images; at this pace the whole run takes {hours:.1f} hours")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train one run of the grid.")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument(
        "--run", required=True, help="its id; `python -m harness.plan --runs` lists them"
    )
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto", help=f"one of {', '.join(DEVICES)}")
    parser.add_argument(
        "--rehearse", type=int, metavar="N", help="N steps only; nothing is written"
    )
    options = parser.parse_args()
    run = planned(options.scale, options.grid).run(options.run)
    limit_threads(options.threads)
    device = pick_device(options.device)
    if options.rehearse:
        rehearse(run, options.results, device, options.rehearse)
    else:
        with only_one(paths.model(options.results, run.id).parent, f"training of {run.id}"):
            train(run, options.results, device)


if __name__ == "__main__":
    run_command(main)
