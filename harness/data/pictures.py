"""Sets that are folders of image files: TinyImageNet and ImageNet.

Classes are numbered in the order of their WordNet ids, as torchvision's ImageFolder does. Rows go
round robin over the classes wherever the files say nothing about order, so that the first n images
of a split are a fair sample of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.data.stream import Arrays, Stream
from harness.errors import UserError, expected

_SUFFIXES = {".jpeg", ".jpg", ".png"}
_CHUNK = 128


def read_class_folders(files: list[Path], size: int, per_class: int | None = None) -> Arrays:
    """<folder>/<class>/*.JPEG or <folder>/<class>/images/*.JPEG, at most `per_class` of each."""
    folder = files[0]
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise expected(f"one folder per class in {folder}", "none", "sort the images into them")
    rows = []
    for label, path in enumerate(classes):
        nested = path / "images"
        names = _image_files(nested if nested.is_dir() else path)
        rows += [(rank, label, file) for rank, file in enumerate(names[:per_class])]
    rows.sort()
    return _decoded([file for _, _, file in rows], [label for _, label, _ in rows], size)


def read_tiny_validation(files: list[Path]) -> Arrays:
    """TinyImageNet's val folder in the order of its annotations; its test labels are not public."""
    folder, annotations, ids = files
    number = {name: label for label, name in enumerate(sorted(ids.read_text().split()))}
    lines = [line.split("\t") for line in annotations.read_text().splitlines() if line]
    strange = [words[1] for words in lines if words[1] not in number]
    if strange:
        raise expected(f"the classes of {ids} in {annotations}", strange[0], "fetch both again")
    return _decoded([folder / words[0] for words in lines], [number[w[1]] for w in lines], 64)


def _image_files(folder: Path) -> list[Path]:
    files = (path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    return sorted(files, key=lambda path: (len(path.name), path.name))  # _2 before _10


def _decoded(files: list[Path], labels: list[int], size: int) -> Arrays:
    def chunks() -> Iterator[np.ndarray]:
        for first in range(0, len(files), _CHUNK):
            yield np.stack([_picture(file, size) for file in files[first : first + _CHUNK]])

    return Stream((len(files), 3, size, size), chunks), np.array(labels, dtype=np.int64)


def _picture(file: Path, size: int) -> np.ndarray:
    """One file as (3, size, size): shorter side to size*256/224, centre cropped, unless it fits."""
    from PIL import Image

    try:
        image = Image.open(file).convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        raise UserError(
            f"expected an image in {file}, found something that cannot be decoded ({error}); "
            f"fetch it again."
        ) from None
    if image.size != (size, size):
        scale = size * 256 / 224 / min(image.size)
        width, height = (max(size, round(scale * side)) for side in image.size)
        left, top = (width - size) // 2, (height - size) // 2
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        image = image.crop((left, top, left + size, top + size))
    return np.asarray(image).transpose(2, 0, 1)
