"""Per-example records: what every accuracy, union, interval and paired test is a reduction of.

A shard is the record of one batch of examples, written as soon as it is done. The records of a model
are all its shards in one file. Plain arrays in .npz: no pickle, and zip checksums notice damage.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import UserError
from harness.files import write_whole


@dataclass(frozen=True)
class Record:
    """One probe of one model. `correct` is False for what was wrong before any attack."""

    correct: np.ndarray  # bool, (n,)
    predicted: np.ndarray  # int16, (n,): the class under attack
    forward: int  # passes really made, in batches, the largest over shards
    backward: int
    forward_examples: int  # passes times examples, over all shards
    backward_examples: int


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError, KeyError) as error:
        if isinstance(error, FileNotFoundError):
            raise UserError(f"expected a record at {path}, found none; evaluate first.") from None
        raise UserError(
            f"expected a whole record in {path}, found a truncated or altered file "
            f"({type(error).__name__}); delete it to compute it again."
        ) from None


def write_shard(path: Path, record: Record) -> None:
    write_arrays(path, {name: np.asarray(value) for name, value in asdict(record).items()})


def read_shard(path: Path) -> Record:
    arrays = read_arrays(path)
    counts = {name: int(arrays[name]) for name in arrays if name not in ("correct", "predicted")}
    return Record(arrays["correct"], arrays["predicted"], **counts)


def joined(shards: list[Record]) -> Record:
    return Record(
        np.concatenate([shard.correct for shard in shards]),
        np.concatenate([shard.predicted for shard in shards]),
        max(shard.forward for shard in shards),
        max(shard.backward for shard in shards),
        sum(shard.forward_examples for shard in shards),
        sum(shard.backward_examples for shard in shards),
    )


def write_records(path: Path, records: dict[str, Record], about: dict[str, Any]) -> None:
    """All records of a model, with what is known about each probe, in one file."""
    arrays: dict[str, np.ndarray] = {}
    notes = {}
    for probe, record in records.items():
        arrays[f"{probe}.correct"], arrays[f"{probe}.predicted"] = record.correct, record.predicted
        counts = asdict(record)
        notes[probe] = {key: counts[key] for key in counts if key not in ("correct", "predicted")}
    text = json.dumps({**about, "passes": notes}, sort_keys=True)
    arrays["about"] = np.frombuffer(text.encode(), np.uint8)
    write_arrays(path, arrays)


def read_records(path: Path) -> tuple[dict[str, Record], dict[str, Any]]:
    arrays = read_arrays(path)
    about = json.loads(arrays["about"].tobytes())
    records = {
        probe: Record(arrays[f"{probe}.correct"], arrays[f"{probe}.predicted"], **counts)
        for probe, counts in about["passes"].items()
    }
    return records, about
