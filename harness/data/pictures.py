"""Sets that are folders of image files: TinyImageNet and ImageNet.

Classes are numbered in the order of their WordNet ids, as in torchvision's ImageFolder. Where the files
give no order, images alternate over the classes, so that the first n are a fair sample.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness.core.errors import expected
from harness.data.cache import Arrays, Stream

_SUFFIXES = {".jpeg", ".jpg", ".png"}
_CHUNK = 128
_SEED = 0  # of a random sample: constant, so that all runs use the same images


def read_class_folders(
    files: list[Path], size: int, short_side: int | None = None, sample: int | None = None
) -> Arrays:
    """<folder>/<class>/*.JPEG or <folder>/<class>/images/*.JPEG, or a random `sample` of them.

    The sample is drawn from all images, and keeps the order of the draw.
    """
    folder = files[0]
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise expected(f"one folder per class in {folder}", "none", "sort the images into them")
    rows = []
    for label, path in enumerate(classes):
        nested = path / "images"
        names = _image_files(nested if nested.is_dir() else path)
        rows += [(rank, label, file) for rank, file in enumerate(names)]
    rows.sort()
    if sample is not None:
        rows = [rows[i] for i in np.random.default_rng(_SEED).permutation(len(rows))[:sample]]
    labels = [label for _, label, _ in rows]
    return _decoded([file for _, _, file in rows], labels, size, short_side or size)


def read_tiny_validation(files: list[Path]) -> Arrays:
    """TinyImageNet's val folder in the order of its annotations; its test labels are not public."""
    folder, annotations, ids = files
    number = {name: label for label, name in enumerate(sorted(ids.read_text().split()))}
    lines = [line.split("\t") for line in annotations.read_text().splitlines() if line]
    unknown = [fields[1] for fields in lines if fields[1] not in number]
    if unknown:
        raise expected(f"the classes of {ids} in {annotations}", unknown[0], "fetch both again")
    files, labels = [folder / fields[0] for fields in lines], [number[f[1]] for f in lines]
    return _decoded(files, labels, size=64, short_side=64)


def _image_files(folder: Path) -> list[Path]:
    files = (path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    return sorted(files, key=lambda path: (len(path.name), path.name))  # _2 before _10


def _decoded(files: list[Path], labels: list[int], size: int, short_side: int) -> Arrays:
    def chunks() -> Iterator[np.ndarray]:
        for first in range(0, len(files), _CHUNK):
            some = files[first : first + _CHUNK]
            yield np.stack([_picture(file, size, short_side) for file in some])

    return Stream((len(files), 3, size, size), chunks), np.array(labels, dtype=np.int64)


def _picture(file: Path, size: int, short_side: int) -> np.ndarray:
    """One file as (3, size, size): the centre crop after resizing the short side to `short_side`."""
    from PIL import Image

    try:
        image = Image.open(file).convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        found = f"something that cannot be decoded ({error})"
        raise expected(f"an image in {file}", found, "fetch it again") from None
    shortest = min(image.size)
    if shortest != short_side:
        width, height = (short_side * side // shortest for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = ((side - size) // 2 for side in image.size)
    image = image.crop((left, top, left + size, top + size))
    return np.asarray(image).transpose(2, 0, 1)
