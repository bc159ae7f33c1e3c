"""Decoded sets on disk, memory-mapped: `<data folder>/cache/<name>-<split>-<key>/`.

A folder is written under another name, checked and renamed, so a reader needs no lock and a killed
writer leaves nothing that looks like data. Writers of the same set wait for each other. The cache
can be deleted at any time.

The arrays never change after that. If their sizes and times are not those that were recorded, the
arrays are read completely and their checksum decides. `generalist-bench fetch` always checks it.
"""

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from harness.core.errors import expected
from harness.core.files import damaged, read_json, whole_folder, write_json

_CHUNK = 1024  # images


@dataclass(frozen=True)
class Stream:
    """uint8 images of a known shape (n, c, h, w) that come piece by piece: too large for memory."""

    shape: tuple[int, ...]
    chunks: Callable[[], Iterator[np.ndarray]]
    dtype = np.dtype(np.uint8)


class Lazy(Protocol):
    """Images whose rows are decoded when they are read: too large for the cache."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray: ...

    def chunks(self) -> Iterator[np.ndarray]: ...


Arrays = tuple[np.ndarray | Stream, np.ndarray]  # images, labels


def chunks_of(images: np.ndarray | Stream | Lazy) -> Iterator[np.ndarray]:
    """The images in chunks that fit into memory."""
    if isinstance(images, np.ndarray):
        for first in range(0, len(images), _CHUNK):
            yield images[first : first + _CHUNK]
    else:
        yield from images.chunks()


def data_folder() -> Path:
    return Path(os.environ.get("GENERALIST_DATA", "data"))


def cache_folder() -> Path:
    """Below the data folder, unless GENERALIST_CACHE names another (a lab's data are read-only)."""
    return Path(os.environ.get("GENERALIST_CACHE") or data_folder() / "cache")


@dataclass(frozen=True)
class Stored:
    """A split of a set, in memory or mapped from files."""

    x: np.ndarray | Lazy
    y: np.ndarray
    source: str
    sha256: str  # of the images' bytes, then the labels' (int64, little endian)
    files: tuple[Path, ...] = ()  # from which the arrays are mapped
    state: str = ""  # of the files, when they were opened

    @property
    def content(self) -> str:
        """Identifies these images: their checksum or, if that is not known, their files' state."""
        return self.sha256 or self.state

    def check_unchanged(self) -> None:
        """Refuse if a file changed: mapped arrays change with it, even between two batches."""
        if state_of(self.files) != self.state:
            what = f"{self.files[0]} as it was when this process began"
            remedy = "put it back, or delete its folder to make it again, then start again"
            raise expected(what, "that it was changed since", remedy)


def state_of(files: Iterable[Path]) -> str:
    """A short hash of the files' sizes and times, which changes when a file does."""
    found = []
    for path in files:
        with suppress(FileNotFoundError):
            found.append((path.name, path.stat().st_size, path.stat().st_mtime_ns))
    return hashlib.sha256(repr(found).encode()).hexdigest()[:12] if found else ""


def slot(name: str, split: str, key: str) -> Path:
    return cache_folder() / f"{name.replace('/', '_')}-{split}-{key}"


def slots(name: str, split: str, key: str = "") -> list[Path]:
    """All finished folders of a set whose key begins with `key`, the newest first."""
    found = cache_folder().glob(f"{name.replace('/', '_')}-{split}-{key}*/about.json")
    return [path.parent for path in sorted(found, key=os.path.getmtime, reverse=True)]


def mapped(file: Path) -> np.ndarray:
    """The array of an .npy file, and of nothing else: numpy's `load` would open an archive, too.

    Copied on write, since torch warns about read-only arrays.
    """
    return np.lib.format.open_memmap(file, mode="c").view(np.ndarray)


def read(folder: Path) -> Stored:
    """What a filled slot holds."""
    path = folder / "about.json"
    remedy = f"delete {folder} to make it again"
    about = read_json(path, "description of a set", remedy)
    files = (folder / "x.npy", folder / "y.npy")
    try:
        x, y = map(mapped, files)
        right = (x.dtype, y.dtype, y.shape) == (np.uint8, np.int64, x.shape[:1])
        if not right or x.ndim not in (4, 2):  # 2: a listing of files
            raise ValueError(f"{x.dtype} {x.shape} and {y.dtype} {y.shape}")
        arrays = x, np.array(y)
        stored = Stored(*arrays, about["source"], about["sha256"], files, state_of(files))
        if stored.state != about.get("state"):
            if digest_of(*arrays) != stored.sha256:
                raise damaged(files[0], "set", remedy)
            with suppress(OSError):  # a copied cache has other times; it may be read-only
                write_json(path, {**about, "state": stored.state})
        return stored
    except PermissionError:  # somebody else's
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
        found = f"a damaged one ({error})"
        again = "delete that folder to make it again"
        raise expected(f"a whole set in {folder}", found, again) from error


def keep(
    folder: Path,
    source: str,
    make: Callable[[], Arrays],
    check_sum: Callable[[int, str], None] = lambda images, digest: None,
) -> Stored:
    """Read the slot, or fill it first: one process makes the set, the others wait."""
    if (folder / "about.json").exists():
        return read(folder)
    with lock(folder):
        if (folder / "about.json").exists():  # filled while we waited
            return read(folder)
        arrays = make()
        with whole_folder(folder) as aside:
            digest = _write(aside, arrays)
            check_sum(len(arrays[1]), digest)
            state = state_of([aside / "x.npy", aside / "y.npy"])
            write_json(aside / "about.json", {"source": source, "sha256": digest, "state": state})
    return read(folder)


def digest_of(x: np.ndarray | Lazy, y: np.ndarray) -> str:
    digest = hashlib.sha256()
    for piece in chunks_of(x):
        digest.update(np.ascontiguousarray(piece).data)
    digest.update(np.ascontiguousarray(y, "<i8").data)
    return digest.hexdigest()


def _write(folder: Path, arrays: Arrays) -> str:
    x, y = arrays
    size, free = int(np.prod(x.shape, dtype=np.int64)), shutil.disk_usage(folder).free
    if size > free:
        what, found = f"{size / 1e9:.1f} GB of room in {folder.parent}", f"{free / 1e9:.1f} GB"
        raise expected(what, found, "set GENERALIST_CACHE to a folder with more")
    digest, written = hashlib.sha256(), 0
    with (folder / "x.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": tuple(x.shape)}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in chunks_of(x):
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
    """One process at a time; the lock ends with the process."""
    aside = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = aside.open("w")
    except PermissionError:
        remedy = "set GENERALIST_CACHE to a folder of your own"
        raise expected(f"a cache that you may write to in {path.parent}", "none", remedy) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that prepares {path.name}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
