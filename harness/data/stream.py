"""Arrays that are too large, or too slow to make, to exist before they are written to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

_CHUNK = 1024  # images


@dataclass(frozen=True)
class Stream:
    """uint8 images of a known shape (n, c, h, w) that come piece by piece."""

    shape: tuple[int, ...]
    chunks: Callable[[], Iterator[np.ndarray]]
    dtype = np.dtype(np.uint8)


Rows = np.ndarray | Stream
Arrays = tuple[Rows, np.ndarray]  # images, labels


def pieces(rows: Rows) -> Iterator[np.ndarray]:
    if isinstance(rows, Stream):
        yield from rows.chunks()
    else:
        for first in range(0, len(rows), _CHUNK):
            yield rows[first : first + _CHUNK]
