"""The id of a run, where its files are below a results folder, and what a training wrote about itself.

An id ends with the hash of a dataclass as JSON. Class names and a REVISION per class are part of it:
raise REVISION when an algorithm changes, and its results are made again; an edited comment changes
nothing. Only None is left out, so a new optional field keeps old ids; an edited default changes them.

A run's run.json holds its own checksum and those of the weights and of history.csv, so that a reader
notices a file that is not what the training wrote. Torch-free.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError, expected, unknown
from harness.core.files import damaged, read_json, sha256, write_json, write_whole

if TYPE_CHECKING:
    import pandas as pd

LINE, RISK = "line_", "risk_"  # begin the names of columns of runs that watch these
AFTER = ":after"  # ends the names of a history's columns that were measured after a redistribution


def model(results: Path, run: str) -> Path:
    return results / "models" / run / "model.safetensors"


def description(results: Path, run: str) -> Path:
    """What the run was, what it cost, where it was made, which epoch it deploys."""
    return results / "models" / run / "run.json"


def history(results: Path, run: str) -> Path:
    return results / "models" / run / "history.csv"


def trace(results: Path, run: str) -> Path:
    """Adversarial images of a watched run's learners; empty for all others."""
    return results / "models" / run / "trace.npz"


def checkpoint(results: Path, run: str, end: int | None = None) -> Path:
    """Not an output of the workflow: Snakemake deletes the outputs of a job that failed.

    `end`: of the job that trains the run until that epoch, for a state.
    """
    return results / "models" / run / ("checkpoint.pt" if end is None else f"checkpoint-{end}.pt")


def state(results: Path, run: str, epoch: int | str) -> Path:
    """A run after some epochs, from which it and others continue."""
    return results / "models" / run / f"state-{epoch}.pt"


def shard(results: Path, run: str, probe: str, number: int) -> Path:
    return results / "records" / run / probe / f"{number:05d}.npz"


def part(results: Path, evaluation: str, number: int | str, of: int | str) -> Path:
    """Marks one part of an evaluation as finished."""
    run, _, fingerprint = evaluation.rpartition("-")
    return results / "records" / run / f"part-{number}-of-{of}-{fingerprint}.json"


def records(results: Path, evaluation: str) -> Path:
    return results / "records" / f"{evaluation}.npz"


def write_description(
    results: Path, run_id: str, about: dict[str, Any], rows: Sequence[Mapping[str, float]]
) -> None:
    """Write run.json, and history.csv with one row per epoch."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, *([f"{row.get(name, '')}" for name in columns] for row in rows)]
    text = "".join(",".join(line) + "\n" for line in lines)
    write_whole(history(results, run_id), text)
    write_json(description(results, run_id), {**about, "history_sha256": sha256(text.encode())})


def read_description(results: Path, run_id: str) -> dict[str, Any]:
    """What run.json holds; refused if it is damaged."""
    path = description(results, run_id)
    try:
        return read_json(path, "description of a run", _remedy(path))
    except FileNotFoundError:
        raise untrained(path, run_id) from None


def read_history(results: Path, run_id: str) -> pd.DataFrame:
    """What history.csv holds, one row per epoch; refused if it is damaged."""
    import pandas as pd  # here: a training writes histories and reads none

    path, about = history(results, run_id), read_description(results, run_id)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise untrained(path, run_id) from None
    if about.get("history_sha256") != sha256(data):
        raise damaged(path, "history of a run", _remedy(path))
    return pd.read_csv(io.BytesIO(data))


def _remedy(path: Path) -> str:
    return f"delete {path.parent} to train it again"


def untrained(path: Path, run_id: str) -> UserError:
    """The error for a run that has not been trained."""
    remedy = f"train it first (generalist-bench train --run {run_id})"
    return expected(f"a trained model in {path.parent}", f"no {path.name}", remedy)


@cache
def field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass, None for another class. Cached: a plan asks 100,000 times."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def canonical(value: Any) -> Any:
    """`value` as plain JSON data; fractions stay text ("8/255"); unknown types are refused."""
    names = field_names(value.__class__)
    if names is not None:
        own = {name: canonical(getattr(value, name)) for name in names}
        return {
            "class": type(value).__name__,
            "revision": getattr(type(value), "REVISION", 1),
            **{name: entry for name, entry in own.items() if entry is not None},
        }
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"expected a finite number in a run's identity, found {value!r}")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [canonical(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): canonical(entry) for key, entry in sorted(value.items())}
    known = "dataclasses, text, numbers, fractions, tuples or mappings"
    raise TypeError(f"expected {known} in a run's identity, found {type(value).__name__}")


def restored(data: Any, classes: Mapping[str, type], hint: Any = None) -> Any:
    """The dataclass that `canonical` wrote; `classes` by the names that are allowed."""
    if isinstance(data, list):
        return tuple(restored(entry, classes, hint) for entry in data)
    if isinstance(data, str) and _mentions(hint, Fraction):
        return Fraction(data)
    if not (isinstance(data, Mapping) and "class" in data):
        return data
    name, revision = data["class"], data["revision"]
    if name not in classes:
        raise unknown("class", name, classes, "a spec")
    own = getattr(classes[name], "REVISION", 1)
    if revision != own:
        found = f"revision {revision}"
        raise expected(f"revision {own} of {name} in a spec", found, "use the code that wrote it")
    hints = _hints(classes[name])
    names = [f.name for f in fields(classes[name]) if f.init]  # `data` lacks those that were None
    values = {own: restored(data.get(own), classes, hints[own]) for own in names}
    return classes[name](**values)


_hints = cache(typing.get_type_hints)


def _mentions(hint: Any, wanted: type) -> bool:
    return hint is wanted or any(_mentions(one, wanted) for one in typing.get_args(hint))


def fingerprint(value: Any) -> str:
    """Ten hexadecimal digits that change whenever `value` does."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def seed_from(*parts: int | str) -> int:
    """A 63-bit seed for one role of one run, independent of the seeds of other roles."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
