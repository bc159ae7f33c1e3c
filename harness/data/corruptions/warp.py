"""Moving pixels: bilinear sampling at given positions, borders mirrored."""

from __future__ import annotations

import numpy as np


def sample(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """x (n, c, h, w) read at float positions (n, h', w')."""
    count, channels, height, width = x.shape
    rows, columns = _mirrored(rows, height), _mirrored(columns, width)
    top = np.minimum(rows.astype(np.int32), height - 2)
    left = np.minimum(columns.astype(np.int32), width - 2)
    down = (rows - top).astype(np.float32).reshape(count, 1, -1)
    right = (columns - left).astype(np.float32).reshape(count, 1, -1)
    flat = x.reshape(count, channels, height * width)
    index = (top * width + left).reshape(count, 1, -1)

    def read(offset: int) -> np.ndarray:
        return np.take_along_axis(flat, index + offset, axis=2)

    upper = read(0) * (1 - right) + read(1) * right
    lower = read(width) * (1 - right) + read(width + 1) * right
    out = upper * (1 - down) + lower * down
    return out.reshape(count, channels, *rows.shape[1:])


def _mirrored(positions: np.ndarray, size: int) -> np.ndarray:
    last = size - 1
    return np.abs((positions + last) % (2 * last) - last)


def grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return rows.astype(np.float32), columns.astype(np.float32)


def project(x: np.ndarray, back: np.ndarray) -> np.ndarray:
    """Move every image by the 3x3 map `back` (one, or one each) from a position (x, y, 1) of the
    result to one of the image, both measured from the image's middle."""
    count, _, height, width = x.shape
    rows, columns = grid(height, width)
    middle = (height - 1) / 2, (width - 1) / 2
    points = np.stack([columns - middle[1], rows - middle[0], np.ones_like(rows)])
    back = np.broadcast_to(back, (count, 3, 3)).astype(np.float32)
    u, v, depth = (sum(back[:, i, j, None, None] * points[j] for j in range(3)) for i in range(3))
    return sample(x, v / depth + middle[0], u / depth + middle[1])
