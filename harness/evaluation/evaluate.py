"""Evaluate one model: `generalist-bench evaluate --scale smoke --run ID`.

Each probe is computed batch by batch. A batch's record is written as soon as it is done, so a killed
job loses at most one batch, and a second start computes only what is missing. The random stream of a
batch depends on the probe and the batch alone, so the order of work changes nothing. PGDs that
differ only in their steps share a stream and a run: PGD20 is a snapshot of PGD100.

Records are kept by probe. What earlier evaluations of the same weights on the same images recorded is
taken over, so a new column computes itself and nothing else.

Several jobs can share the work: `--part 2/8` does every eighth batch. The plain command, once all parts
are there, finds nothing missing, checks the model and joins what they wrote.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.core import paths, process
from harness.core.errors import UserError
from harness.core.paths import canonical, seed_from
from harness.core.process import Cost, Progress
from harness.data import Images, frames, load
from harness.evaluation.probing import EXAMPLES, Check, evaluate_family, inspect
from harness.evaluation.records import (
    Part,
    Record,
    joined,
    read_records,
    read_shard,
    write_part,
    write_records,
    write_shard,
)
from harness.grid.columns import EvalRun, Probe
from harness.machine.device import enough_memory
from harness.models.folding import foldable
from harness.models.tracing import fold_unknown
from harness.training.batches import on_device

_LOWER = (
    "lower batch_size_of of its network, or batch_size, in `test` of the scale (config/scales), or "
    "--batch-size with --model"
)


_FOLDED_ON = 16  # images that compare a folded copy with its network


# While a batch is computed; it is told the progress line, how many batches are done, and the probe.
Inside = Callable[[tuple[Progress, int, Probe]], AbstractContextManager[Any]]


@dataclass(frozen=True)
class _Work:
    """A model, what is asked of it, and the images."""

    evaluation: EvalRun
    model: nn.Module
    weights: str  # a checksum
    results: Path
    device: torch.device
    whole: bool = True  # corrupted sets, also where fewer images are asked for: other models share them
    inside: Inside = nullcontext  # shows progress in a batch

    @cached_property
    def sets(self) -> dict[str, Images]:
        most: dict[str, int] = defaultdict(int)
        for probe in self.evaluation.probes:
            most[probe.dataset] = max(most[probe.dataset], probe.examples // frames(probe.dataset))
        return {name: load(name, "test", None if self.whole else n) for name, n in most.items()}

    def fold(self) -> str | None:
        """Look for layers to fold in a network that names none; what was done goes into the records."""
        if foldable(self.model):
            return None
        images = next(iter(self.sets.values())).take(slice(_FOLDED_ON))
        return fold_unknown(self.model, on_device(images, self.device)[0])

    def earlier(self) -> tuple[dict[str, Record], Cost]:
        """Records of these weights and images in other record files of the run, and their cost."""
        found: dict[str, Record] = {}
        cost, wanted = Cost(), {probe.id: probe for probe in self.evaluation.probes}
        for path in sorted(self.results.glob(f"records/{self.evaluation.run}-*.npz")):
            try:
                records, about = read_records(path, self.evaluation)
            except UserError:  # damaged: what it held is computed again
                continue
            if about.get("weights") != self.weights:
                continue
            new = [name for name in records if name in wanted.keys() - found.keys()]
            new = [name for name in new if self._same_images(wanted[name].dataset, about)]
            if new:
                found |= {name: records[name] for name in new}
                cost += Cost(about["seconds"], about["cpu_seconds"])
        return found, cost

    def _same_images(self, name: str, about: dict[str, Any]) -> bool:
        images = self.sets[name]
        now = (images.source, images.stored.sha256)
        return now == (about["sources"].get(name), about["sha256"].get(name))

    def shards(self, probes: Iterable[Probe], part: Part) -> Iterator[tuple[str, Record, Cost]]:
        """Each record of a part's batches by its probe, with its cost: read or computed."""
        turns, each = itertools.count(), families(probes)
        for number, family in enumerate(each):
            first = family[0]
            images = self.sets[first.dataset].take(slice(first.examples))
            batches = enumerate(range(0, len(images), first.batch_size))
            own = [batch for batch in batches if part.takes(next(turns))]
            which = f"  part {part}" if part.of > 1 else ""
            names = " ".join(probe.id for probe in family)
            label = f"evaluate {self.evaluation.run}{which}  {number + 1}/{len(each)} {names}"
            progress = Progress(label, len(own))
            for done, (count, start) in enumerate(own):
                with self.inside((progress, done, family[-1])):
                    yield from self._batch(family, images, count, start)
                progress.update(done + 1)
                process.check()

    def _batch(
        self, family: list[Probe], images: Images, count: int, start: int
    ) -> list[tuple[str, Record, Cost]]:
        """One batch of a family. Of PGDs that share a run the last bears the cost."""
        stamp = {"weights": self.weights, "images": images.source, "content": images.stored.content}
        files = {p.id: paths.shard(self.results, self.evaluation.run, p.id, count) for p in family}
        read = {p.id: read_shard(files[p.id], p, stamp) for p in family if files[p.id].exists()}
        records = {i: shard for i, shard in read.items() if shard is not None}
        missing = [probe for probe in family if probe.id not in records]
        if missing:
            began, first = Cost.now(), family[0]
            rows = slice(start, start + first.batch_size)
            seed = seed_from(first.seed, first.family, count)
            generator = torch.Generator(self.device).manual_seed(seed)
            with enough_memory(f"an evaluation of {first.batch_size} images at once", _LOWER):
                x, y = on_device(images.take(rows), self.device)
                made = evaluate_family(self.model, missing, x, y, generator)
            images.stored.check_unchanged()
            costs = [Cost()] * (len(missing) - 1) + [Cost.now() - began]
            for probe, record, cost in zip(missing, made, costs, strict=True):
                write_shard(files[probe.id], record, stamp, cost)
                records[probe.id] = record, cost
        return [(name, record, cost) for name, (record, cost) in records.items()]


def families(probes: Iterable[Probe]) -> list[list[Probe]]:
    """Probes that share a run, by rising steps. One with Grad-CAM maps takes a run of its own."""
    found: dict[str, list[Probe]] = defaultdict(list)
    for probe in sorted(probes, key=lambda p: getattr(p.attack, "steps", 0)):
        found[probe.id if probe.heat else probe.family].append(probe)
    return list(found.values())


def evaluate_part(
    evaluation: EvalRun,
    model: nn.Module,
    weights: str,
    results: Path,
    device: torch.device,
    part: Part,
    **theirs: Any,
) -> None:
    """Compute a part's batches; `evaluate` joins them with those of the other parts."""
    work = _Work(evaluation, model, weights, results, device, **theirs)
    work.fold()
    known, _ = work.earlier()
    missing = [probe for probe in evaluation.probes if probe.id not in known]
    write_part(results, evaluation, part, weights, sum(1 for _ in work.shards(missing, part)))


def evaluate(
    evaluation: EvalRun,
    model: nn.Module,
    weights: str,
    results: Path,
    device: torch.device,
    trained: dict[str, Any] | None = None,
    **theirs: Any,
) -> None:
    """Write the records of a model in eval mode, computing only what is not there yet.

    `weights` is a checksum: records of other weights, or of other images, do not count.
    `trained` is what is known of the training and kept with the records. `theirs` are `whole`
    and `inside` of `_Work`, for networks that are not ours.
    """
    work = _Work(evaluation, model, weights, results, device, **theirs)
    folding = work.fold()
    known, spent = work.earlier()
    shards: dict[str, list[Record]] = defaultdict(list)
    missing = [probe for probe in evaluation.probes if probe.id not in known]
    for name, record, cost in work.shards(missing, Part()):
        shards[name].append(record)
        spent += cost
    began = Cost.now()
    checks = checked(model, evaluation, work.sets, device)
    spent += Cost.now() - began
    about = {
        "run": evaluation.run,
        "weights": weights,
        "checks": [check.as_json() for check in checks],
        "probes": {probe.id: canonical(probe) for probe in evaluation.probes},
        "sources": {name: images.source for name, images in work.sets.items()},
        "sha256": {name: images.stored.sha256 for name, images in work.sets.items()},
        **spent.as_json(),
        "trained": trained,
    }
    about |= {"folding": folding} if folding else {}
    plain = {p.dataset: p.examples for p in evaluation.probes if "/" not in p.dataset}
    labels = {name: work.sets[name].y[:n].astype(np.int16) for name, n in plain.items()}
    records = {**known, **{name: joined(own) for name, own in shards.items()}}
    ordered = {probe.id: records[probe.id] for probe in evaluation.probes}
    write_records(paths.records(results, evaluation.id), ordered, about, labels)


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
    with enough_memory(f"the checks of a model on {EXAMPLES} images", "use a device with more"):
        return inspect(model, pixels.to(device), y.to(device), by_norm)
