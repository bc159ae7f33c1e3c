"""Plain arrays in .npz: no pickle, and zip checksums notice damage."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from harness.core.errors import UserError
from harness.core.files import write_whole


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise UserError(f"expected a record at {path}, found none; evaluate first.") from None
    except Exception as error:  # damage in a zip file surfaces as a dozen kinds of exception
        raise UserError(
            f"expected a whole record in {path}, found a truncated or altered file "
            f"({type(error).__name__}); delete it to compute it again."
        ) from None
