"""Per-example records, and the numbers that reduce them. Torch-free.

A shard is the record of one batch of examples, written as soon as it is done. The records of a model
are all its shards in one file. Plain arrays in .npz: no pickle, and zip checksums notice damage.

Several jobs can share an evaluation. They take batches in turn, through all probes:
AutoAttack's costs vary from batch to batch, and most probes have fewer batches than there are jobs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import paths
from harness.core.errors import expected
from harness.core.files import read_arrays, write_arrays, write_whole
from harness.core.process import Cost
from harness.data import frames
from harness.data.corruptions.sequences import flips
from harness.data.sets import SETS
from harness.data.sources import recipe
from harness.grid.artefacts import Artefact
from harness.grid.columns import EvalRun, Formula, Probe
from harness.grid.plan import Plan


@dataclass(frozen=True)
class Record:
    """One probe of one model. `correct` is False for what was wrong before any attack."""

    correct: np.ndarray  # bool, (n,)
    predicted: np.ndarray  # int16, (n,): the class under attack
    broken_by: np.ndarray  # int8, (n,): the stage that broke it; -1 stands, -2 wrong from the start
    forward: int  # passes really made, in batches, the largest over shards
    backward: int
    forward_examples: int  # passes times examples, over all shards
    backward_examples: int
    warnings: tuple[str, ...] = ()
    heat: np.ndarray | None = None  # uint8, (n, height, width): Grad-CAM of the prediction


Records = tuple[dict[str, Record], dict[str, Any]]  # of one model, and what is known about it
_ARRAYS = {"correct": np.bool_, "predicted": np.int16, "broken_by": np.int8}
_ALL = (*_ARRAYS, "heat")
_REMEDY = "delete it to compute it again"
_COUNTS = ("forward", "backward", "forward_examples", "backward_examples")
_LABELS = "labels:"
_ABOUT = 2**22  # bytes of JSON; lite's largest has 50,000
_PIXELS = max(math.prod(entry.size) for entry in SETS.values())  # a map is no larger than its image


def write_shard(path: Path, record: Record, stamp: dict[str, str], cost: Cost) -> None:
    write_records(path, {"shard": record}, {"stamp": stamp, "cost": cost.as_json()})


def read_shard(path: Path, probe: Probe, stamp: dict[str, str]) -> tuple[Record, Cost] | None:
    """A finished shard and what it took, unless it was made of other weights or other images."""
    records, about = _read(path, {"shard": probe})
    if about.get("stamp") != stamp:
        return None
    return records["shard"], Cost(**about.get("cost", {}))


def joined(shards: list[Record]) -> Record:
    arrays = {name: np.concatenate([getattr(shard, name) for shard in shards]) for name in _ARRAYS}
    maps = [shard.heat for shard in shards if shard.heat is not None]
    return Record(
        arrays["correct"],
        arrays["predicted"],
        arrays["broken_by"],
        forward=max(shard.forward for shard in shards),
        backward=max(shard.backward for shard in shards),
        forward_examples=sum(shard.forward_examples for shard in shards),
        backward_examples=sum(shard.backward_examples for shard in shards),
        warnings=tuple(sorted({warning for shard in shards for warning in shard.warnings})),
        heat=np.concatenate(maps) if maps else None,
    )


def write_records(
    path: Path,
    records: dict[str, Record],
    about: dict[str, Any],
    labels: dict[str, np.ndarray] | None = None,
) -> None:
    """Records by probe, with what is known about them and the model, in one file."""
    arrays = {f"{_LABELS}{name}": array for name, array in (labels or {}).items()}
    notes: dict[str, dict[str, Any]] = {}
    for probe, record in records.items():
        fields = asdict(record)
        own = {name: fields.pop(name) for name in _ALL}
        arrays |= {f"{probe}.{name}": array for name, array in own.items() if array is not None}
        notes[probe] = fields
    text = json.dumps({**about, "passes": notes}, sort_keys=True)
    arrays["about"] = np.frombuffer(text.encode(), np.uint8)
    write_arrays(path, arrays)


def read_records(path: Path, evaluation: EvalRun) -> Records:
    """What `write_records` wrote of an evaluation's probes: of its own file all, of another's some."""
    records, about = _read(path, {probe.id: probe for probe in evaluation.probes})
    if about.get("run", evaluation.run) != evaluation.run:
        found = f"those of {about['run']}"
        raise expected(f"the records of {evaluation.run} in {path}", found, _REMEDY)
    return records, about


def read_evaluation(results: Path, evaluation: EvalRun) -> Records:
    """All records of an evaluation, from its own file; all are of as many images."""
    path = paths.records(results, evaluation.id)
    records, about = read_records(path, evaluation)
    for probe in evaluation.probes:
        if probe.id not in records:
            raise expected(f"the records of {probe.id} in {path}", "none", _REMEDY)
    counts = {len(records[probe.id].correct) / frames(probe.dataset) for probe in evaluation.probes}
    counts |= {len(labels) for labels in about["labels"].values()}
    if len(counts) > 1:
        raise expected(f"records of as many images each in {path}", sorted(counts), _REMEDY)
    return records, {**about, "images": counts.pop()}


def _read(path: Path, probes: Mapping[str, Probe]) -> Records:
    """The records of some probes by name; no array may have more images than its probe."""
    known: dict[str, tuple[type[np.generic], int]] = {"about": (np.uint8, _ABOUT)}
    for name, probe in probes.items():
        known |= {f"{name}.{array}": (kind, probe.examples) for array, kind in _ARRAYS.items()}
        known[f"{name}.heat"] = (np.uint8, probe.examples * _PIXELS if probe.heat else 0)
        known[_LABELS + probe.dataset] = (np.int16, probe.examples)
    arrays = read_arrays(path, known)
    try:
        about = json.loads(arrays["about"].tobytes())
        passes = {name: dict(notes) for name, notes in about["passes"].items() if name in probes}
        records = {name: _record(arrays, name, notes) for name, notes in passes.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        found = f"something else ({type(error).__name__}: {error})"
        raise expected(f"the parts of a record in {path}", found, _REMEDY) from None
    about["labels"] = {
        name.removeprefix(_LABELS): array for name, array in arrays.items() if name.startswith(_LABELS)
    }
    return records, about


def _record(arrays: Mapping[str, np.ndarray], name: str, notes: dict[str, Any]) -> Record:
    own: dict[str, Any] = {array: arrays[f"{name}.{array}"] for array in _ARRAYS}
    heat, images = arrays.get(f"{name}.heat"), len(own["correct"])
    shapes = {array.shape for array in own.values()}
    if shapes != {(images,)} or not images or (heat is not None and heat.shape[:-2] != (images,)):
        raise ValueError(f"arrays of the shapes {sorted(shapes)}")
    if own["predicted"].min() < 0 or not all(isinstance(notes[count], int) for count in _COUNTS):
        raise ValueError("a class or a number of passes that is none")
    return Record(**own, **{**notes, "warnings": tuple(notes["warnings"])}, heat=heat)


@dataclass(frozen=True)
class Part:
    """Every `of`-th batch, beginning with the `number`-th; part 1 of 1 is all of them."""

    number: int = 1
    of: int = 1

    @classmethod
    def read(cls, text: str) -> Part:
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise expected("--part 1/8 to 8/8", text, "say which part, and of how many")
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def takes(self, turn: int) -> bool:
        return turn % self.of == self.number - 1


def write_part(results: Path, evaluation: EvalRun, part: Part, weights: str, batches: int) -> None:
    """Mark a part as finished."""
    path = paths.part(results, evaluation.id, part.number, part.of)
    write_whole(path, json.dumps({"weights": weights, "batches": batches}, indent=1) + "\n")


def value(formula: Formula, records: Mapping[str, Record]) -> np.ndarray:
    """A formula per image: 0 or 1, or in between for the mean of two columns."""
    if formula.op == "probe":
        return records[formula.parts[0]].correct
    if formula.sequence is not None:
        record, length = records[formula.parts[0]], frames(formula.sequence)
        if formula.op == "frames":
            return record.correct.reshape(-1, length).mean(axis=1)
        return flips(record.predicted.reshape(-1, length), formula.sequence).mean(axis=1)
    parts = [value(part, records) for part in formula.parts]
    return np.logical_and.reduce(parts) if formula.op == "all" else np.mean(parts, axis=0)


def read_artefact(artefact: Artefact, plan: Plan, results: Path) -> dict[str, Records]:
    read = {run: read_evaluation(results, plan.evaluations[run]) for run in artefact.runs}
    images: dict[str, str] = {}  # whose -> the checksum behind the runs so far
    for run, (_, about) in read.items():
        for whose, found in _checksums(plan, run, about).items():
            if images.setdefault(whose, found) != found:
                raise expected(
                    f"the same {whose} behind every number of {artefact.name}",
                    f"others behind {paths.records(results, plan.evaluations[run].id)}",
                    "delete that file (and its model, if those images trained it) to compute it again",
                )
    return read


def _checksums(plan: Plan, run: str, about: Mapping[str, Any]) -> dict[str, str]:
    """Of all images behind a model's records, as far as they are known. Of a generated set it is how it
    was made: on another processor a few pixels in a million round the other way, by one grey level."""
    tested = {
        f"test images of {name}": recipe(about["sources"][name]) or found
        for name, found in about.get("sha256", {}).items()
    }
    learnt = (about.get("trained") or {}).get("trained_on")
    name = f"training images of {plan.run(run).dataset}"
    known = {**tested, name: learnt["sha256"]} if learnt else tested
    known[f"number of images of {plan.run(run).dataset}"] = f"{about['images']:g}"
    return {whose: found for whose, found in known.items() if found}
