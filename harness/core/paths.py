"""Where files are below a results folder, and what a training wrote about itself. Torch-free.

A run's run.json holds its own checksum and those of the weights and of history.csv, so that a reader
notices a file that is not what the training wrote.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.files import damaged, read_json, sha256, write_json, write_whole

if TYPE_CHECKING:
    import pandas as pd

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


def checkpoint(results: Path, run: str) -> Path:
    """Not an output of the workflow: Snakemake deletes the outputs of a job that failed."""
    return results / "models" / run / "checkpoint.pt"


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
    lines = [",".join(columns)]
    lines += [",".join(f"{row.get(name, '')}" for name in columns) for row in rows]
    text = "\n".join(lines) + "\n"
    write_whole(history(results, run_id), text)
    about = {**about, "history_sha256": sha256(text.encode())}
    write_json(description(results, run_id), about)


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
    if about.get("history_sha256") not in (None, sha256(data)):
        raise damaged(path, "history of a run", _remedy(path))
    return pd.read_csv(io.BytesIO(data))


def _remedy(path: Path) -> str:
    return f"delete {path.parent} to train it again"


def untrained(path: Path, run_id: str) -> UserError:
    """The error for a run that has not been trained."""
    return UserError(
        f"expected a trained model in {path.parent}, found no {path.name}; "
        f"train it first (python -m harness train --run {run_id})."
    )
