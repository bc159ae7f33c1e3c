"""Measures the passes of a method's step and the cost of a network's pass.

`generalist-bench meter` writes docs/passes.csv and docs/operations.csv for all scales; what they
lack is measured when it is needed.

A method's passes are those of one real step, at several times of a run, on a tiny network that is
always right, so that no example leaves an attack early. If a network that is always wrong takes
another number, the rate is an upper bound.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.attacks.attack import perturb
from harness.attacks.balls import Ball
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.attacks.work import Work
from harness.core.config import scales
from harness.core.errors import expected
from harness.core.process import Progress
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.jobs import bill
from harness.jobs.bill import Kind, Network, Rate
from harness.machine.device import pick_device, placed, set_up
from harness.models.networks import new_model
from harness.training.contracts import Batch, Clock, Lab, Method
from harness.training.runs import TrainRun
from harness.training.train import device_name

CALIBRATION_SECONDS = 10.0  # of all networks together, if each pass of one image allows it
_REPEATS = 3  # of a whole batch, of which the fastest counts
_TIMES = 4  # of a run, at which a step is measured
_IMAGES, _CLASSES = 4, 10
_MARGIN = 20.0  # in favour of class 0, which no attack overcomes
_PASSES = ("forward", "input_gradients", "updates")  # the fields of Work


def rates(plan: Plan) -> Mapping[str, Rate]:
    """Shape -> rate for all methods of a plan, measured where docs/passes.csv has none."""
    trained, known = [*plan.runs.values(), *plan.trunks.owners.values()], bill.known_rates()
    runs = {bill.shape(run.method): run for run in trained}
    new = {key: run for key, run in runs.items() if key not in known}
    set_up(1)  # one thread is fastest on tiny networks
    names = [run.method.slug for run in new.values()]
    return {**known, **_measured(new, names, lambda run: rate(run.method, len(run.parents)))}


def rate(method: Method, parents: int) -> Rate:
    """A method's passes per image, as the mean over several times of a run."""
    taken = [_passes(method, parents, number) for number in range(_TIMES)]
    wrong, _ = _passes(method, parents, _TIMES - 1, right=False)
    step, choice = (sum(own, Work()) * (1 / (_TIMES * _IMAGES)) for own in zip(*taken, strict=True))
    return Rate(step, choice, at_most=wrong != taken[-1][0])


def _passes(method: Method, parents: int, number: int, right: bool = True) -> tuple[Work, Work]:
    """The passes of one step at a time of a run, and of asking for the model."""
    counts: Counter[str] = Counter()

    def note(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        trained = any(parameter.requires_grad for parameter in module.parameters())

        def moved(_: Tensor) -> None:
            counts["forward"] -= len(logits)
            counts["updates" if trained else "input_gradients"] += len(logits)

        counts["forward"] += len(logits)
        if logits.requires_grad:
            logits.register_hook(moved)

    def network() -> nn.Module:
        model = new_model("tiny", 1, _CLASSES, seed=0)
        with torch.no_grad():
            model.linear.bias[0] += _MARGIN  # type: ignore[union-attr, operator, index]
        model.register_forward_hook(note)
        return model

    x = torch.rand(_IMAGES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    batch = Batch(x, torch.full((_IMAGES,), 0 if right else 1), torch.arange(_IMAGES))
    lab = Lab(
        new_model=network,
        parents=tuple(network() for _ in range(parents)),
        num_classes=_CLASSES,
        generator=lambda role: torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
        validation=batch,
        sample=batch,
    )
    training = getattr(method, "serial", method).start(lab)
    training.step(batch, Clock(2 * number + 1, 0, 2 * _TIMES, 1))
    step = Work(**counts)
    counts.clear()
    training.deployed()
    return step, Work(**counts)


def prices(plan: Plan, device: str, tflops: float | None) -> tuple[dict[Kind, Work], str]:
    """Seconds of a pass of one image, timed or at so many TFLOPS, and the name of the device."""
    runs = {bill.kind(run): run for run in plan.runs.values()}
    if tflops is not None:
        if not tflops > 0:
            raise expected("TFLOPS above 0", tflops, "write --device-tflops 20")
        known, name = bill.known_networks(), f"{tflops:g} TFLOPS"
        networks = {key: known.get(key) or network(run) for key, run in runs.items()}
        return {key: own.price * (1e-12 / tflops) for key, own in networks.items()}, name
    chosen, threads = pick_device(device), plan.scale["threads"]
    set_up(threads)
    name = device_name(chosen) + (f" ({threads} threads)" if chosen.type == "cpu" else "")
    share = CALIBRATION_SECONDS / len(runs)
    names = [f"{name}, images of {'x'.join(map(str, image))}" for name, image in runs]
    return _measured(runs, names, lambda run: seconds(run, chosen, share)), name


def _measured(
    runs: Mapping[Any, TrainRun], names: Iterable[str], measure: Callable[[TrainRun], Any]
) -> dict[Any, Any]:
    """What `measure` finds for each; a line says what is being measured, as it can take seconds."""
    found: dict[Any, Any] = {}
    progress = Progress("measuring", len(runs))
    for (key, run), name in zip(runs.items(), names, strict=True):
        progress.show(len(found), name)
        found[key] = measure(run)
    if found:
        progress.show(len(found))
    return found


def _model(run: TrainRun, images: int, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """A run's network, and a batch of so many images and labels for it."""
    entry = SETS[run.dataset]
    model = placed(new_model(run.network, entry.channels, entry.classes, seed=0), device)
    x = torch.rand(images, entry.channels, *entry.size, device=device)
    return model, x, torch.arange(images, device=device) % entry.classes


def seconds(run: TrainRun, device: torch.device, budget: float) -> Work:
    """What a pass takes per image, in the largest batch (at most the run's own) that time allows."""
    model, x, y = _model(run, run.recipe.batch_size, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    attack = PGD(Ball("linf", Fraction(8, 255)), Fraction(2, 255), steps=1)

    def make(kind: str, x: Tensor, y: Tensor) -> None:
        if kind == "forward":
            with torch.no_grad():
                model.eval()(x)
        elif kind == "input_gradients":
            perturb(attack, model, x, y, generator=torch.Generator(device))
        else:
            optimizer.zero_grad()
            cross_entropy(model.train()(x), y).mean().backward()
            optimizer.step()

    found = []
    doubled = [2**power for power in range(len(x).bit_length()) if 2**power < len(x)]
    for kind in _PASSES:
        began, least = time.perf_counter(), 0.0
        for size in (*doubled, *[len(x)] * _REPEATS):
            started = time.perf_counter()
            if started - began + 1.2 * size * least > budget / len(_PASSES):
                break
            make(kind, x[:size], y[:size])
            if device.type == "cuda":
                torch.cuda.synchronize()
            took = (time.perf_counter() - started) / size
            least = min(least or took, took)
        found.append(least)
    return Work(*found)


def network(run: TrainRun) -> Network:
    """A network's operations and bytes per image, counted without computing anything."""
    from torch.utils.flop_counter import FlopCounterMode

    operations: list[float] = []
    kept: dict[int, Tensor] = {}  # by storage: two layers may keep the same tensor

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    for kind in _PASSES:
        kept.clear()
        model, x, _ = _model(run, 1, torch.device("meta"))
        x.requires_grad_(kind == "input_gradients")
        model.train(kind == "updates").requires_grad_(kind == "updates")
        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        with FlopCounterMode(display=False) as counter, hooks:
            logits = model(x)
            if kind != "forward":
                logits.sum().backward()
        operations.append(float(counter.get_total_flops()))
    weights = {weight.untyped_storage()._cdata: weight for weight in model.parameters()}
    kept_bytes = sum(tensor.nbytes for key, tensor in kept.items() if key not in weights)
    weight_bytes = sum(weight.nbytes for weight in weights.values())
    return Network(Work(*operations), float(kept_bytes), float(weight_bytes))


def _write(path: Path, rows: Mapping[Any, tuple[float, ...]], digits: int) -> None:
    """Replace the rows of a CSV file, keys and numbers; its header stays."""
    lines = [path.read_text().partition("\n")[0]]
    for key, numbers in rows.items():
        lines.append(",".join([*map(str, key), *(f"{number:.{digits}g}" for number in numbers)]))
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    argparse.ArgumentParser(description="Measure docs/passes.csv and docs/operations.csv.").parse_args()
    set_up(1)
    plans = [Plan.read(scale) for scale in scales()]
    runs = [run for own in plans for run in (*own.runs.values(), *own.trunks.owners.values())]
    methods = {bill.shape(run.method): run for run in reversed(runs)}  # the first of each shape
    passes, operations = {}, {}
    for key, run in sorted(methods.items(), key=lambda item: (item[1].method.slug, item[0])):
        own = rate(run.method, len(run.parents))
        passes[key, run.method.slug] = (*astuple(own.step), *astuple(own.choice), own.at_most)
    for (name, image), run in sorted({bill.kind(run): run for run in runs}.items()):
        found = network(run)
        operations[name, *image] = (*astuple(found.price), found.kept_bytes, found.weight_bytes)
    _write(bill.PASSES, passes, digits=6)
    _write(bill.OPERATIONS, operations, digits=12)
    print(f"{len(passes)} shapes of methods and {len(operations)} networks measured")
