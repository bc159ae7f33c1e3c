"""Images of one's own as a data set: an .npz with `x` and `y`, or a folder with a folder per class.

They become a set like any other, under a name made of the file's and a hash of the images. Images are
8-bit: `x` is uint8, or numbers in [0,1] that are multiples of 1/255.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from harness.core.errors import expected
from harness.data.cache import digest_of
from harness.data.sets import SETS, DataSet

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp")
_BETWEEN = 1e-3  # of a grey level


def dataset(name: str, classes: int | None = None) -> str:
    """The name of a data set for `--data`: one that is known, or a file or folder of one's own."""
    path = Path(name)
    if name in SETS or not (path.suffix == ".npz" or path.is_dir()):
        if path.suffix or "/" in name:
            remedy = f"give an .npz, a folder of images, or one of {', '.join(SETS)}"
            raise expected(f"images in {name}", "no such file or folder", remedy)
        return name
    if not path.exists():
        raise expected(f"images in {path}", "no such file", "give the path of one that is there")
    x, y = _archive(path) if path.suffix == ".npz" else _folder(path)
    x, y = _pixels(x, path), _labels(y, len(x), path)
    own = f"{re.sub(r'[^a-zA-Z0-9]', '_', path.stem)}_{digest_of(x, y)[:8]}"
    most = classes or int(y.max()) + 1
    size = (x.shape[2], x.shape[3])
    SETS[own] = DataSet(own, most, x.shape[1], size, embedded=lambda split: (x, y), flip=False)
    return own


def _archive(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            lacking = [name for name in ("x", "y") if name not in file.files]
            if lacking:
                found = f"the arrays {', '.join(file.files)}"
                remedy = "np.savez(path, x=images, y=labels)"
                raise expected(f"the arrays x and y in {path}", found, f"write it with {remedy}")
            return file["x"], file["y"]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        remedy = "write it with np.savez(path, x=images, y=labels)"
        raise expected(f"plain arrays in {path}", error, remedy) from None


def _folder(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """A class per folder, in the order of their names; of numbers, the number is the class."""
    names = sorted(child.name for child in path.iterdir() if child.is_dir())
    numbers = all(name.isdecimal() for name in names)
    pictures, labels = [], []
    for number, name in enumerate(names):
        for file in sorted((path / name).iterdir()):
            if file.suffix.lower() in _SUFFIXES:
                pictures.append(_picture(file))
                labels.append(int(name) if numbers else number)
    if not pictures:
        remedy = "put the images of each class into a folder with its name or number"
        raise expected(f"folders of images in {path}", "none", remedy)
    shapes = {picture.shape for picture in pictures}
    if len(shapes) > 1:
        found = " and ".join("x".join(map(str, shape)) for shape in sorted(shapes)[:3])
        raise expected(f"images of one size and kind in {path}", found, "resize or convert them")
    return np.stack(pictures), np.array(labels)


def _picture(file: Path) -> np.ndarray:
    try:
        with Image.open(file) as image:
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise expected(f"an image in {file}", error, "delete it or mend it") from None


def _pixels(x: np.ndarray, path: Path) -> np.ndarray:
    """uint8, (n, channels, height, width)."""
    if x.ndim == 3:  # grey
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not len(x):
        what = f"images (n, 1 or 3, height, width) or (n, height, width, 1 or 3) in {path}"
        raise expected(what, f"an array {x.shape}", "reshape them")
    if x.dtype != np.uint8:
        levels = x.astype(np.float64) * 255
        whole = np.rint(levels)
        if not np.isfinite(levels).all() or np.abs(levels - whole).max() > _BETWEEN:
            found = f"{x.dtype} from {x.min():.4g} to {x.max():.4g}, with levels between those"
            remedy = "save them before they are normalised"
            raise expected(f"8-bit images (uint8, or multiples of 1/255) in {path}", found, remedy)
        if whole.min() < 0 or whole.max() > 255:
            found = f"{x.dtype} from {x.min():.4g} to {x.max():.4g}"
            raise expected(f"images in [0,1] or uint8 in {path}", found, "convert them to uint8")
        x = whole.astype(np.uint8)
    return np.ascontiguousarray(x)


def _labels(y: np.ndarray, images: int, path: Path) -> np.ndarray:
    y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != (images,) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        found = f"{y.dtype} {y.shape}"
        raise expected(f"{images} whole numbers from 0 on as labels in {path}", found, "mend y")
    return y.astype(np.int64)
