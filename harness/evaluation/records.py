"""Per-example records, and the numbers that reduce them. Torch-free.

A shard is the record of one batch of examples, written as soon as it is done. The records of a model
are all its shards in one file. Plain arrays in .npz: no pickle, and zip checksums notice damage.

Several jobs can share an evaluation. They take batches in turn, through all probes:
AutoAttack's costs vary from batch to batch, and most probes have fewer batches than there are jobs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import paths
from harness.core.errors import UserError, expected
from harness.core.files import read_arrays, write_arrays, write_whole
from harness.core.process import Cost
from harness.data import frames
from harness.data.corruptions.sequences import flips
from harness.data.sources import recipe
from harness.grid.artefacts import Artefact
from harness.grid.columns import EvalRun, Formula
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


_ARRAYS = ("correct", "predicted", "broken_by")
_ALL = (*_ARRAYS, "heat")
_LABELS = "labels:"


def write_shard(path: Path, record: Record, stamp: dict[str, str], cost: Cost) -> None:
    write_records(path, {"shard": record}, {"stamp": stamp, "cost": cost.as_json()})


def read_shard(path: Path, stamp: dict[str, str]) -> tuple[Record, Cost] | None:
    """A finished shard and what it took, unless it was made of other weights or other images."""
    records, about = read_records(path)
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


def read_records(path: Path, run: str | None = None) -> tuple[dict[str, Record], dict[str, Any]]:
    """What `write_records` wrote; if it is said whose records they must be, no other's."""
    arrays = read_arrays(path)
    try:
        about = json.loads(arrays["about"].tobytes())
        records = {
            probe: Record(
                arrays[f"{probe}.correct"],
                arrays[f"{probe}.predicted"],
                arrays[f"{probe}.broken_by"],
                heat=arrays.get(f"{probe}.heat"),
                **{**notes, "warnings": tuple(notes["warnings"])},
            )
            for probe, notes in about["passes"].items()
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"expected the parts of a record in {path}, found something else "
            f"({type(error).__name__}: {error}); delete it to compute it again."
        ) from None
    if run is not None and about.get("run", run) != run:
        raise UserError(
            f"expected the records of {run} in {path}, found those of {about['run']}; delete it "
            "to compute it again."
        )
    about["labels"] = {
        name.removeprefix(_LABELS): array for name, array in arrays.items() if name.startswith(_LABELS)
    }
    return records, about


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


Records = tuple[dict[str, Record], dict[str, Any]]  # of one model, and what is known about it


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
    files = {run: paths.records(results, plan.evaluations[run].id) for run in artefact.runs}
    read = {run: read_records(path, run) for run, path in files.items()}
    images: dict[str, str] = {}  # whose -> the checksum behind the runs so far
    for run, (_, about) in read.items():
        for whose, found in _checksums(plan, run, about).items():
            if images.setdefault(whose, found) != found:
                raise expected(
                    f"the same {whose} behind every number of {artefact.name}",
                    f"others behind {files[run]}",
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
    return {whose: found for whose, found in known.items() if found}
