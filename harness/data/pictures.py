"""Sets that are folders of image files: TinyImageNet and ImageNet.

Classes are numbered in the order of their WordNet ids, as in torchvision's ImageFolder. Where the files
give no order, images alternate over the classes, so that the first n are a fair sample.

A set that is small enough is decoded once and kept so (`read_class_folders`). ImageNet's training
images stay files: they are listed and checked once (`list_class_folders`) and decoded whenever they are
read (`Pictures`). That takes more CPU than to crop decoded images (benchmarks/README.md, "ImageNet's
feed"), but no 330 GB, and no crop is coarser than its file.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.errors import expected
from harness.core.process import Progress
from harness.data.cache import Arrays, Stream

if TYPE_CHECKING:
    from PIL import Image  # planning reads the list of sets and no image

_SUFFIXES = {".jpeg", ".jpg", ".png"}
_CHUNK = 512
_SEED = 0  # of a random sample: constant, so that all runs use the same images
_DIGEST = 32  # bytes of a sha256, with which a row of a listing begins


def read_class_folders(
    files: list[Path], size: int, short_side: int | None = None, sample: int | None = None
) -> Arrays:
    """<folder>/<class>/*.JPEG or <folder>/<class>/images/*.JPEG, or a random `sample` of them.

    The sample is drawn from all images, and keeps the order of the draw.
    """
    names, labels = _class_files(files[0])
    if sample is not None:
        rows = np.random.default_rng(_SEED).permutation(len(names))[:sample]
        names, labels = names[rows], labels[rows]
    return _decoded(files[0], names, labels, size, short_side or size)


def read_tiny_validation(files: list[Path]) -> Arrays:
    """TinyImageNet's val folder in the order of its annotations; its test labels are not public."""
    folder, annotations, ids = files
    number = {name: label for label, name in enumerate(sorted(ids.read_text().split()))}
    lines = [line.split("\t") for line in annotations.read_text().splitlines() if line]
    unknown = [fields[1] for fields in lines if fields[1] not in number]
    if unknown:
        raise expected(f"the classes of {ids} in {annotations}", unknown[0], "fetch both again")
    names, labels = [os.fsencode(fields[0]) for fields in lines], [number[f[1]] for f in lines]
    return _decoded(folder, names, np.array(labels, np.int64), size=64, short_side=64)


def list_class_folders(files: list[Path]) -> Arrays:
    """The listing of images that stay files; each is decoded once, so a bad one is found now."""
    names, labels = _class_files(files[0])
    chunks = partial(_listing, files[0], names, decode=True)
    return Stream((len(names), _DIGEST + names.itemsize), chunks), labels


class Pictures:
    """Image files as an array (n, 3, size, size) of their middles; rows are decoded when read."""

    dtype = np.dtype(np.uint8)

    def __init__(self, folder: Path, listing: np.ndarray, size: int, short_side: int) -> None:
        self.folder, self.listing, self.size, self.short_side = folder, listing, size, short_side
        self.shape = (len(listing), 3, size, size)

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        made = np.empty((len(self.listing[rows]), *self.shape[1:]), np.uint8)
        numbers = range(len(self))[rows] if isinstance(rows, slice) else rows
        with ThreadPoolExecutor(cores()) as pool:
            for place, middle in enumerate(pool.map(self._middle, numbers)):
                made[place] = middle
        return made

    def picture(self, number: int) -> Image.Image:
        """One image as it is in its file, which must be the one that was listed."""
        row = self.listing[number].tobytes()
        file = _file(self.folder, row[_DIGEST:].rstrip(b"\0"))
        content = _content(file)
        if hashlib.sha256(content).digest() != row[:_DIGEST]:
            remedy = "put the old one back, or touch its folder to list the set again"
            raise expected(f"{file} as it was when it was listed", "another file", remedy)
        return _image(content, file)

    def chunks(self) -> Iterator[np.ndarray]:
        """The listing of the files as they are now, for the checksum of the set."""
        width = self.listing.shape[1] - _DIGEST
        names = np.ascontiguousarray(self.listing[:, _DIGEST:]).view(f"S{width}")[:, 0]
        return _listing(self.folder, names, decode=False)

    def _middle(self, number: int) -> np.ndarray:
        return _middle(self.picture(number), self.size, self.short_side)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _class_files(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The names of all images below the folder, alternating over the classes, and their labels."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise expected(f"one folder per class in {folder}", "none", "sort the images into them")
    each = [_image_files(path) for path in classes]
    labels = np.repeat(np.arange(len(each)), [len(names) for names in each])
    ranks = np.concatenate([np.arange(len(names)) for names in each])
    order = np.lexsort((labels, ranks))
    return np.concatenate(each)[order], labels[order]


def _image_files(folder: Path) -> np.ndarray:
    """The names of a class's images, from the folder above: an array, since there can be millions."""
    inner = f"{folder.name}/images" if (folder / "images").is_dir() else folder.name
    found = os.listdir(folder.parent / inner)
    names = [name for name in found if os.path.splitext(name)[1].lower() in _SUFFIXES]
    names.sort(key=lambda name: (len(name), name))  # _2 before _10
    return np.array([os.fsencode(f"{inner}/{name}") for name in names], np.bytes_)


def _decoded(
    folder: Path, names: Sequence[bytes] | np.ndarray, labels: np.ndarray, size: int, short_side: int
) -> Arrays:
    def decode(name: bytes) -> np.ndarray:
        file = _file(folder, name)
        return _middle(_image(_content(file), file), size, short_side)

    def chunks() -> Iterator[np.ndarray]:
        return map(np.stack, _in_threads(decode, names, f"decoding {folder}"))

    return Stream((len(names), 3, size, size), chunks), labels


def _listing(folder: Path, names: np.ndarray, decode: bool) -> Iterator[np.ndarray]:
    """Rows of a file's sha256 and its name."""

    def row(name: bytes) -> bytes:
        file = _file(folder, name)
        content = _content(file)
        if decode:
            _image(content, file)
        return hashlib.sha256(content).digest() + name.ljust(names.itemsize, b"\0")

    for rows in _in_threads(row, names, f"checking {folder}"):
        yield np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def _in_threads(
    work: Callable[[bytes], Any], names: Sequence[bytes] | np.ndarray, what: str
) -> Iterator[list[Any]]:
    """`work` on all names, a chunk at a time, with a progress line. Decoders work outside the GIL."""
    progress = Progress(what, len(names))
    with ThreadPoolExecutor(cores()) as pool:
        for first in range(0, len(names), _CHUNK):
            yield list(pool.map(work, names[first : first + _CHUNK]))
            progress.update(min(first + _CHUNK, len(names)))


def _file(folder: Path, name: bytes) -> Path:
    return folder / os.fsdecode(name)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise expected(f"an image in {file}", f"none ({error.strerror})", "fetch it again") from None


def _image(content: bytes, file: Path) -> Image.Image:
    from PIL import Image

    try:
        return Image.open(io.BytesIO(content)).convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        found = f"something that cannot be decoded ({error})"
        raise expected(f"an image in {file}", found, "fetch it again") from None


def _middle(image: Image.Image, size: int, short_side: int) -> np.ndarray:
    """An image as (3, size, size): the centre crop after resizing the short side to `short_side`."""
    from PIL import Image

    shortest = min(image.size)
    if shortest != short_side:
        width, height = (short_side * side // shortest for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = ((side - size) // 2 for side in image.size)
    image = image.crop((left, top, left + size, top + size))
    return np.asarray(image).transpose(2, 0, 1)
