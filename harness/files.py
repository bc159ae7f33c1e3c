"""Files that appear whole or not at all, and that notice when they were damaged."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from harness.errors import UserError

_SEAL = b"sealed sha256 "


def write_whole(path: Path, content: bytes | str) -> None:
    """Write aside, flush to disk, rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)  # mkstemp's 0600 would hide results from the rest of a lab
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_sealed(path: Path, payload: bytes) -> None:
    write_whole(path, _SEAL + sha256(payload).encode() + b"\n" + payload)


def read_sealed(path: Path, what: str) -> bytes:
    """The payload of `write_sealed`; a truncated or altered file is refused, never half used."""
    data = path.read_bytes()
    header, _, payload = data.partition(b"\n")
    if header != _SEAL + sha256(payload).encode():
        raise UserError(
            f"expected a whole {what} in {path}, found a truncated or altered file of "
            f"{len(data)} bytes; delete it to compute it again."
        )
    return payload
