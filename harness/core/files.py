"""Files that appear whole or not at all, whose checksums show damage, and whose texts are only texts.

A label or a title comes from a config. Whatever it holds, Markdown and CSV show it and do nothing else:
it ends no cell, it is no tag or link, and no spreadsheet computes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import math
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core import process
from harness.core.errors import UserError, expected

if TYPE_CHECKING:
    import pandas as pd

_HEADER = b"sealed sha256 "  # of a file with a checksum
_CHECKSUM = "seal"  # its key in JSON; committed files have it
Known = Mapping[str, tuple[type[np.generic], int]]  # array -> the type of its numbers, how many at most
_MEMBERS = 10_000  # at most in an .npz; an evaluation of all columns writes hundreds
_MARKDOWN = re.compile(r"[\\`*$|]|~(?=~)|(?<=~)~|<|&(?=#?\w+;)|\](?=[(\[])")
_ENTITIES = {"<": "&lt;", "&": "&amp;"}  # not every reader of Markdown knows a backslash before these
_FORMULA = re.compile(r"'*\s*[=+\-@＝＋－＠]")  # how a cell begins that a spreadsheet computes
_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EBADF)  # some network disks


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a temporary file, flush it to disk, rename it: readers see the old file or the new one.

    The temporary file has one name per file, so writers of the same file take turns, and the next one
    overwrites what a killed one left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
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
    """What `write_json` wrote."""
    try:
        about = json.loads(path.read_bytes())
        checksum = about.pop(_CHECKSUM, None)
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise damaged(path, what, remedy) from None
    if checksum != _checksum(about):
        raise damaged(path, what, remedy)
    return about


def _checksum(about: dict[str, Any]) -> str:
    return sha256(json.dumps(about, sort_keys=True).encode())


def damaged(path: Path, what: str, remedy: str) -> UserError:
    """The error for a file that does not have its checksum, or has none."""
    found = f"a truncated or altered file of {path.stat().st_size} bytes"
    return expected(f"a whole {what} in {path}", found, remedy)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Plain arrays as .npz: no pickle, and zip checksums show damage."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_whole(path, buffer.getvalue())


def read_arrays(path: Path, known: Known) -> dict[str, np.ndarray]:
    """The known arrays of an .npz that `write_arrays` wrote; nothing else in it is unpacked.

    A file of 3 MB may unpack to gigabytes, and what it says of its sizes may be a lie: no array may be
    larger than the reader knows that it can be.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) > _MEMBERS or len(set(names)) < len(names):
                raise ValueError(f"{len(names)} members, {len(set(names))} names")
            there = {name: f"{name}.npy" for name in known if f"{name}.npy" in names}
            return {name: _array(archive, file, *known[name]) for name, file in there.items()}
    except FileNotFoundError:
        raise UserError(f"expected a record at {path}, found none; evaluate first.") from None
    except (PermissionError, IsADirectoryError, NotADirectoryError):
        raise
    except Exception as error:  # damage in a zip file raises many kinds of exception
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        found = f"a truncated or altered file ({reason})"
        remedy = "delete it to compute it again"
        raise expected(f"a whole record in {path}", found, remedy) from None


def _array(archive: zipfile.ZipFile, name: str, kind: type[np.generic], most: int) -> np.ndarray:
    member = archive.getinfo(name)
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} has a compression whose steps have no limit")
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} is not of version 1.0")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        count = math.prod(shape)
        if dtype != kind or min(shape, default=0) < 0 or count > most:
            limit = f"at most {most} of {np.dtype(kind)}"
            raise ValueError(f"{name} is {dtype} {shape}, and not {limit}")
        data = file.read(count * dtype.itemsize)
        if file.read(1):  # at the end zipfile compares the checksum
            raise ValueError(f"{name} is longer than its header says")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def in_markdown(text: object) -> str:
    """A text in a line or a cell of Markdown."""
    return _MARKDOWN.sub(lambda sign: _ENTITIES.get(sign[0], f"\\{sign[0]}"), one_line(text).strip())


def in_csv(table: pd.DataFrame) -> str:
    """A table as CSV; a text that a spreadsheet would compute gets a ' in front."""

    def harmless(text: str) -> str:
        line = one_line(text)
        return f"'{line}" if _FORMULA.match(line) and not _NUMBER.fullmatch(line) else line

    return _texts(table, harmless).to_csv(index=False)


def from_csv(table: pd.DataFrame) -> pd.DataFrame:
    """A table that was read from such a CSV, with its texts as they were."""
    return _texts(table, lambda text: text[text[:1] == "'" and bool(_FORMULA.match(text)) :])


def _texts(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    import pandas as pd  # here: a training writes no table

    changed = table.copy()
    for name, column in table.items():
        if column.dtype.kind == "O":  # kept: of [5, None] pandas would make 5.0 and nan
            values = [change(value) if isinstance(value, str) else value for value in column]
            changed[name] = pd.Series(values, column.index, column.dtype)
    return changed


def one_line(text: object) -> str:
    """A text with spaces for its line ends, and for all that has no shape of its own."""
    return "".join(sign if sign.isprintable() else " " for sign in str(text))
