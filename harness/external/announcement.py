"""What an evaluation will do, how long by the bill, and how much disk: said before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from harness.attacks.attack import input_gradient
from harness.attacks.losses import cross_entropy
from harness.attacks.work import Work
from harness.core.process import Progress, lasting
from harness.data.corrupted import ARCHIVES, parse
from harness.data.sets import SETS
from harness.external.question import Question
from harness.grid.columns import Probe
from harness.grid.work import of_evaluation
from harness.machine.device import tf32
from harness.models.folding import frozen

_IMAGES = 32  # of the batch that is timed
_REPEATS = 2


def announced(question: Question, price: Work, where: str) -> list[str]:
    """The columns, the passes and their time, and the disk for corrupted images."""
    names = ", ".join(column.name for column in question.shown)
    work = of_evaluation(question.probes)
    lines = [f"{len(question.probes)} records for {names}"]
    passes = f"{work.all_forward:,.0f} forward and {work.backward:,.0f} backward passes of an image"
    hours = work.at(price) / 3600  # of a small network the attacks' own arithmetic takes more
    lines.append(f"at most {passes}: {lasting(hours)} in the network, on {where}")
    made = [probe for probe in question.probes if generated(probe)]
    if made:
        entry = SETS[question.dataset]
        size = sum(probe.examples for probe in made) * entry.channels * entry.size[0] * entry.size[1]
        lines.append(f"{len(made)} corrupted sets are made first, or read: {size / 1e9:.2g} GB of disk")
    return lines


@contextmanager
def counted(model: nn.Module, progress: Progress, done: int, probe: Probe) -> Iterator[None]:
    """Show the share of a batch's passes, of which there are at most so many, as they are made."""
    most, made = of_evaluation((probe,)).all_forward * probe.batch_size / probe.examples, 0

    def count(module: nn.Module, inputs: Any, logits: Any) -> None:
        nonlocal made
        made += len(inputs[0])
        progress.update(done + min(made / most, 0.99))

    hook = model.register_forward_hook(count)
    try:
        yield
    finally:
        hook.remove()


def generated(probe: Probe) -> bool:
    """Is it about images that we corrupt ourselves?"""
    if "/" not in probe.dataset:
        return False
    archive = ARCHIVES.get(parse(probe.dataset).family)
    return archive is None or not archive.found()


@tf32(False)
def price(model: nn.Module, x: Tensor, y: Tensor) -> Work:
    """Seconds of a pass of one image: the faster of two, after one that warms up."""
    x, y = x[:_IMAGES], y[:_IMAGES]

    def gradient() -> None:
        input_gradient(model, x, lambda z: cross_entropy(z, y))

    def forward() -> None:
        with torch.no_grad():
            model(x)

    with frozen(model):
        kinds = {"forward": forward, "input_gradients": gradient}
        return Work(**{kind: _seconds(make, x) / len(x) for kind, make in kinds.items()})


def _seconds(make: Callable[[], None], x: Tensor) -> float:
    found = []
    for _ in range(1 + _REPEATS):
        began = time.perf_counter()
        make()
        if x.is_cuda:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return min(found[1:])
