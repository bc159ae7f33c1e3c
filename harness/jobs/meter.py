"""What harness/jobs/bill.py cannot know without running something: passes of a step, seconds of a pass.

A method's passes are those of one real step, at several times of a run, on a tiny network that is
always right, so that no example leaves an attack early; if a network that is always wrong takes another
number, the rate is an upper bound. `python -m harness meter` writes those of all scales to
docs/passes.csv, and what a pass of each network costs to docs/operations.csv.

A pass is timed on the device at hand, in batches as large as the share of 20 seconds allows, or its
operations are counted, for a device that one does not have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor, nn

from harness.attacks.attack import perturb
from harness.attacks.balls import Ball
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.core.config import scales
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.jobs.bill import Rate, Work, serial, shape, write_rates
from harness.jobs.resources import Network, write_networks
from harness.machine.device import pick_device, placed, set_up
from harness.models.networks import new_model
from harness.training.contracts import Batch, Clock, Lab, Method
from harness.training.runs import TrainRun
from harness.training.train import device_name

CALIBRATION_SECONDS = 20.0
_TIMES = 4  # of a run, at which a step is measured
_IMAGES, _CLASSES = 4, 10
_MARGIN = 20.0  # in favour of class 0: out of any attack's reach
_CPU = torch.device("cpu")


def calibrated(
    plan: Plan, device: str, tflops: float | None
) -> tuple[dict[str, Rate], dict[tuple[str, str], Work], str]:
    """Rates, prices in seconds, and what they are the prices of."""
    set_up(1)  # more only get into each other's way on tiny networks
    found = {key: own for key, (_, own) in rates(plan).items()}
    if tflops is not None:
        counted = prices(plan, None).items()
        return found, {key: own * (1e-12 / tflops) for key, own in counted}, f"{tflops:g} TFLOPS"
    chosen, threads = pick_device(device), plan.scale["threads"]
    set_up(threads)
    name = device_name(chosen) + (f" ({threads} threads)" if chosen.type == "cpu" else "")
    return found, prices(plan, chosen), name


def rates(plan: Plan) -> dict[str, tuple[str, Rate]]:
    """Shape -> the slug of a method that has it, and its rate."""
    found: dict[str, tuple[str, Rate]] = {}
    for run in plan.runs.values():
        key = shape(run.method)
        if key not in found:
            found[key] = run.method.slug, rate(run.method, len(run.parents))
    return found


def rate(method: Method, parents: int) -> Rate:
    steps, choices = zip(
        *(passes(method, parents, number) for number in range(_TIMES)), strict=True
    )
    wrong, _ = passes(method, parents, _TIMES - 1, right=False)
    share = 1 / (_TIMES * _IMAGES)
    return Rate(sum(steps, Work()) * share, sum(choices, Work()) * share, wrong != steps[-1])


def passes(method: Method, parents: int, number: int, right: bool = True) -> tuple[Work, Work]:
    """The passes of one step at a time of a run, and of asking for the model."""
    counts = {"forward": 0, "climbs": 0, "learns": 0}

    def note(module: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        kind = "learns" if any(p.requires_grad for p in module.parameters()) else "climbs"
        counts["forward"] += len(logits)
        if logits.requires_grad:
            logits.register_hook(lambda _: counts.update({kind: counts[kind] + len(logits)}))

    def network() -> nn.Module:
        model = new_model("tiny", 1, _CLASSES, seed=0)
        with torch.no_grad():
            model.linear.bias[0] += _MARGIN  # type: ignore[union-attr, operator, index]
        model.register_forward_hook(note)
        return model

    def taken() -> Work:
        looks = counts["forward"] - counts["climbs"] - counts["learns"]
        return Work(looks, counts["climbs"], counts["learns"])

    x = torch.rand(_IMAGES, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.full((_IMAGES,), 0 if right else 1)
    batch = Batch(x, y, torch.arange(_IMAGES))
    lab = Lab(
        new_model=network,
        parents=tuple(network() for _ in range(parents)),
        num_classes=_CLASSES,
        generator=lambda role: torch.Generator().manual_seed(0),
        device=_CPU,
        validation=batch,
        sample=batch,
    )
    training = serial(method).start(lab)
    training.step(batch, Clock(2 * number + 1, 0, 2 * _TIMES, 1))
    step = taken()
    counts.update(dict.fromkeys(counts, 0))
    training.deployed()
    return step, taken()


def prices(plan: Plan, device: torch.device | None) -> dict[tuple[str, str], Work]:
    """(network, data set) -> seconds a pass of one image; without a device, operations."""
    wanted = {(run.network, run.dataset): run for run in plan.runs.values()}
    alike: dict[tuple, Work] = {}
    kinds = {key: _kind(run) for key, run in wanted.items()}
    for key, run in wanted.items():
        if kinds[key] not in alike:
            share = CALIBRATION_SECONDS / len(set(kinds.values()))
            alike[kinds[key]] = operations(run) if device is None else seconds(run, device, share)
    return {key: alike[kind] for key, kind in kinds.items()}


def _kind(run: TrainRun) -> tuple:
    return run.network, SETS[run.dataset].channels, SETS[run.dataset].size


def _network(run: TrainRun, device: torch.device) -> tuple[nn.Module, Callable[[int], Batch]]:
    entry = SETS[run.dataset]
    model = placed(new_model(run.network, entry.channels, entry.classes, seed=0), device)

    def images(size: int) -> Batch:
        index = torch.arange(size, device=device)
        x = torch.rand(size, entry.channels, *entry.size, device=device)
        return Batch(x, index % entry.classes, index)

    return model, images


def _passes(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Callable[[Batch], None]]:
    """A look, a climb and a learn."""
    attack = PGD(Ball("linf", Fraction(8, 255)), Fraction(2, 255), steps=1)

    @torch.no_grad()
    def look(batch: Batch) -> None:
        model.eval()(batch.x)

    def climb(batch: Batch) -> None:
        generator = torch.Generator(batch.x.device).manual_seed(0)
        perturb(attack, model, batch.x, batch.y, generator=generator)

    def learn(batch: Batch) -> None:
        optimizer.zero_grad()
        cross_entropy(model.train()(batch.x), batch.y).mean().backward()
        optimizer.step()

    return [look, climb, learn]


def seconds(run: TrainRun, device: torch.device, budget: float) -> Work:
    """What a pass takes per image, in the largest batch (at most the run's own) that time allows."""
    model, images = _network(run, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found = []
    for go in _passes(model, optimizer):
        began, size, least = time.perf_counter(), 2, float("inf")
        while True:
            batch = images(size)
            started = time.perf_counter()
            go(batch)
            if device.type == "cuda":
                torch.cuda.synchronize()
            now = time.perf_counter()
            least = min(least, (now - started) / size)
            size = min(2 * size, run.recipe.batch_size)
            if now - began + 1.2 * size * least > budget / 3:
                break
        found.append(least)
    return Work(*found)


def operations(run: TrainRun) -> Work:
    """Floating-point operations of a pass; nothing is computed."""
    from torch.utils.flop_counter import FlopCounterMode

    meta = torch.device("meta")
    found = []
    for kind in range(3):
        model, images = _network(run, meta)
        x = images(1).x.requires_grad_(kind == 1)
        model.eval().requires_grad_(kind == 2)
        with FlopCounterMode(display=False) as counter:
            logits = model(x)
            if kind:
                logits.sum().backward()
        found.append(float(counter.get_total_flops()))
    return Work(*found)


def measured(run: TrainRun) -> Network:
    """What a run's network costs per image; nothing is computed."""
    kept: dict[int, Tensor] = {}  # by storage: two layers may keep the same tensor

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    model, images = _network(run, torch.device("meta"))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.train()(images(1).x)
    weights = list(model.parameters())
    for weight in weights:
        kept.pop(weight.untyped_storage()._cdata, None)
    price = operations(run)
    return Network(
        run.network,
        SETS[run.dataset].channels,
        *SETS[run.dataset].size,
        *price.parts,
        kept_bytes=float(sum(tensor.nbytes for tensor in kept.values())),
        weight_bytes=float(sum(weight.nbytes for weight in weights)),
    )


def main() -> None:
    set_up(1)
    found: dict[str, tuple[str, Rate]] = {}
    networks: dict[tuple, Network] = {}
    for scale in scales():
        plan = Plan.read(scale)
        found = rates(plan) | found
        for kind, run in {_kind(run): run for run in plan.runs.values()}.items():
            networks.setdefault(kind, measured(run))
    write_rates(found)
    write_networks(list(networks.values()))
    print(f"{len(found)} shapes of methods and {len(networks)} networks measured")
