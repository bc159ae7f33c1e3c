"""Files that appear whole or not at all, and whose checksums show damage."""

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import process
from harness.core.errors import UserError, expected

_HEADER = b"sealed sha256 "  # of a file with a checksum
_CHECKSUM = "seal"  # its key in JSON; committed files have it
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EBADF)  # some network disks


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a temporary file, flush it to disk, rename it: readers see the old file or the new one.

    The temporary file has one name per file, so writers of the same file take turns, and the next one
    overwrites what a killed one left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.part")
    try:
        # Delayed: no SIGTERM between opening the file and the `try` that removes it.
        with process.delayed(), os.fdopen(_open_locked(aside), "wb") as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(aside, path)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
    except OSError as error:  # the error of a full disk names no file
        error.filename = error.filename or str(path)
        raise


def _open_locked(aside: Path) -> int:
    """Open an empty file that no other process writes."""
    while True:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        _lock(handle, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):  # its writer renamed it while we waited
            if os.path.samestat(os.fstat(handle), os.stat(aside)):
                os.ftruncate(handle, 0)
                return handle
        os.close(handle)


def _lock(handle: int, how: int) -> None:
    try:
        fcntl.flock(handle, how)
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise


@contextmanager
def only_one(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder, or refuse if another process has it; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait for that one, or end it, then start again"
            found = "a process that is at it"
            raise expected(f"no other {what} in {folder}", found, remedy) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to fill; it is renamed to `folder` at the end, or removed after an error."""
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_with_checksum(path: Path, payload: bytes) -> None:
    write_whole(path, _HEADER + sha256(payload).encode() + b"\n" + payload)


def read_with_checksum(path: Path, what: str) -> bytes:
    """The payload that `write_with_checksum` wrote; a damaged file is refused."""
    data = path.read_bytes()
    header, _, payload = data.partition(b"\n")
    if header != _HEADER + sha256(payload).encode():
        raise damaged(path, what, "delete it to compute it again")
    return payload


def write_json(path: Path, about: dict[str, Any]) -> None:
    """Readable JSON whose last entry is the checksum of all others."""
    write_whole(path, json.dumps({**about, _CHECKSUM: _checksum(about)}, indent=1) + "\n")


def read_json(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """What `write_json` wrote; old files have no checksum and are accepted."""
    try:
        about = json.loads(path.read_bytes())
        checksum = about.pop(_CHECKSUM, None)
    except (ValueError, AttributeError, TypeError):
        raise damaged(path, what, remedy) from None
    if checksum not in (None, _checksum(about)):
        raise damaged(path, what, remedy)
    return about


def _checksum(about: dict[str, Any]) -> str:
    return sha256(json.dumps(about, sort_keys=True).encode())


def damaged(path: Path, what: str, remedy: str) -> UserError:
    """The error for a file that does not have its checksum."""
    found = f"a truncated or altered file of {path.stat().st_size} bytes"
    return expected(f"a whole {what} in {path}", found, remedy)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Plain arrays as .npz: no pickle, and zip checksums show damage."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise UserError(f"expected a record at {path}, found none; evaluate first.") from None
    except Exception as error:  # damage in a zip file raises many kinds of exception
        found = f"a truncated or altered file ({type(error).__name__})"
        remedy = "delete it to compute it again"
        raise expected(f"a whole record in {path}", found, remedy) from None
