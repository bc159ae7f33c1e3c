"""Decoded sets on disk, memory-mapped: `<data folder>/cache/<name>-<split>-<key>/`.

A folder of the cache is never changed once it has its name: it is written aside, checked, and
renamed, so a reader needs no lock and a killed writer leaves nothing that could be taken for data.
Writers of the same set wait for each other. The whole cache can be deleted at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.data.stream import Arrays, pieces
from harness.errors import UserError, expected


def data_folder() -> Path:
    return Path(os.environ.get("GENERALIST_DATA", "data"))


def cache_folder() -> Path:
    """Below the data folder, unless GENERALIST_CACHE names another (a lab's data are read-only)."""
    named = os.environ.get("GENERALIST_CACHE")
    return Path(named) if named else data_folder() / "cache"


@dataclass(frozen=True)
class Stored:
    x: np.ndarray
    y: np.ndarray
    source: str
    sha256: str  # of the images' bytes, then the labels' (int64, little endian)


def slot(name: str, split: str, key: str) -> Path:
    return cache_folder() / f"{name.replace('/', '_')}-{split}-{key}"


def slots(name: str, split: str) -> list[Path]:
    """Every finished one of a set, the newest first."""
    found = cache_folder().glob(f"{name.replace('/', '_')}-{split}-*/about.json")
    return [path.parent for path in sorted(found, key=os.path.getmtime, reverse=True)]


def read(folder: Path) -> Stored | None:
    """What a slot holds. Mapped copy-on-write: torch dislikes arrays that it may not write."""
    about = folder / "about.json"
    if not about.exists():
        return None
    try:
        x, y = (np.load(folder / f"{part}.npy", mmap_mode="c") for part in "xy")
        return Stored(x.view(np.ndarray), np.array(y), **json.loads(about.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"expected a whole set in {folder}, found a damaged one ({error}); "
            f"delete that folder to make it again."
        ) from error


def keep(
    folder: Path,
    source: str,
    make: Callable[[], Arrays],
    check: Callable[[Arrays], None] = lambda arrays: None,
    check_sum: Callable[[int, str], None] = lambda images, digest: None,
) -> Stored:
    """Read the slot, or fill it: of several processes one makes the set and the others wait."""
    stored = read(folder)
    if stored is not None:
        return stored
    with lock(folder):
        stored = read(folder)  # filled while we waited
        if stored is not None:
            return stored
        arrays = make()
        check(arrays)
        aside = folder.with_name(f".{folder.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            digest = _write(aside, arrays)
            check_sum(len(arrays[1]), digest)
            (aside / "about.json").write_text(json.dumps({"source": source, "sha256": digest}))
            os.replace(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    stored = read(folder)
    assert stored is not None
    return stored


def digest_of(x: np.ndarray, y: np.ndarray) -> str:
    digest = hashlib.sha256()
    for piece in pieces(x):
        digest.update(np.ascontiguousarray(piece).data)
    digest.update(np.ascontiguousarray(y, "<i8").data)
    return digest.hexdigest()


def _write(folder: Path, arrays: Arrays) -> str:
    x, y = arrays
    size, free = int(np.prod(x.shape, dtype=np.int64)), shutil.disk_usage(folder).free
    if size > free:
        raise expected(
            f"{size / 1e9:.1f} GB of room in {folder.parent}",
            f"{free / 1e9:.1f} GB",
            "set GENERALIST_CACHE to a folder with more",
        )
    digest, written = hashlib.sha256(), 0
    with (folder / "x.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": tuple(x.shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces(x):
            piece = np.ascontiguousarray(piece)
            assert piece.dtype == np.uint8
            assert piece.shape[1:] == x.shape[1:]
            file.write(piece.data)
            digest.update(piece.data)
            written += len(piece)
        file.flush()
        os.fsync(file.fileno())
    assert written == x.shape[0]
    labels = np.ascontiguousarray(y, "<i8")
    np.save(folder / "y.npy", labels)
    digest.update(labels.data)
    return digest.hexdigest()


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """One process at a time. The system drops the lock of a process that dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that prepares {path.name}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
