"""What a training wrote down about itself: run.json and history.csv. Torch-free.

run.json is sealed, and holds the checksums of the weights and of the history: whoever reads one of them
knows that it is what the training wrote.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import paths
from harness.core.errors import UserError
from harness.core.files import damaged, read_json, sha256, write_json, write_whole

if TYPE_CHECKING:
    import pandas as pd

AFTER = ":after"  # ends the name of what a history holds as it is after a redistribution


def write_description(
    results: Path, run_id: str, about: dict[str, Any], history: Sequence[Mapping[str, float]]
) -> None:
    columns = list(dict.fromkeys(name for row in history for name in row))
    lines = [",".join(columns)]
    lines += [",".join(f"{row.get(name, '')}" for name in columns) for row in history]
    text = "\n".join(lines) + "\n"
    write_whole(paths.history(results, run_id), text)
    about = {**about, "history_sha256": sha256(text.encode())}
    write_json(paths.description(results, run_id), about)


def description(results: Path, run_id: str) -> dict[str, Any]:
    """The run's fields, its cost, where it was made, the checksums of its weights and history."""
    path = paths.description(results, run_id)
    try:
        return read_json(path, "description of a run", _remedy(path))
    except FileNotFoundError:
        raise untrained(path, run_id) from None


def history(results: Path, run_id: str) -> pd.DataFrame:
    """One row per epoch."""
    import pandas as pd  # here: a training writes histories and reads none

    path, about = paths.history(results, run_id), description(results, run_id)
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
    return UserError(
        f"expected a trained model in {path.parent}, found no {path.name}; "
        f"train it first (python -m harness train --run {run_id})."
    )
