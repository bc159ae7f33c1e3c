"""Linear operations on images: separable filters, small kernels, and sampling at given positions.

A separable filter is one small matrix per axis. numpy multiplies image by image, so that a batch rounds
exactly as a single image does.
"""

from functools import lru_cache

import numpy as np


def side(x: np.ndarray) -> float:
    """The shorter side in units of 32 pixels."""
    return min(x.shape[-2:]) / 32


def pixels(x: np.ndarray, length: float) -> float:
    """A length that is given for 32 pixels, at this size (see the package's docstring)."""
    return length * max(1.0, side(x))


def separable(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return rows @ x @ columns.T


def gaussian(x: np.ndarray, sigma: float, mode: str = "edge", truncate: float = 4) -> np.ndarray:
    return separable(x, *(gaussian_matrix(size, sigma, mode, truncate) for size in x.shape[-2:]))


@lru_cache(maxsize=256)
def gaussian_matrix(size: int, sigma: float, mode: str, truncate: float) -> np.ndarray:
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.eye(size, dtype=np.float32)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    sources = np.pad(np.arange(size), radius, mode=mode)  # type: ignore[call-overload]
    matrix = np.zeros((size, size))
    for offset, weight in zip(offsets, weights / weights.sum(), strict=True):
        np.add.at(matrix, (np.arange(size), sources[offset + radius :][:size]), weight)
    return matrix.astype(np.float32)


@lru_cache(maxsize=256)
def zoom_matrix(size: int, zoom: float) -> np.ndarray:
    """Bilinear magnification about the middle of the axis."""
    middle = (size - 1) / 2
    return bilinear_matrix(size, (np.arange(size) - middle) / zoom + middle)


def bilinear_matrix(size: int, positions: np.ndarray) -> np.ndarray:
    low = np.clip(np.floor(positions).astype(int), 0, size - 2)
    part = np.clip(positions - low, 0, 1)
    matrix = np.zeros((len(positions), size), np.float32)
    rows = np.arange(len(positions))
    matrix[rows, low] = 1 - part
    matrix[rows, low + 1] = part
    return matrix


@lru_cache(maxsize=256)
def box_matrix(size: int, target: int) -> np.ndarray:
    """Resizing by averaging the pixels whose centres lie in the target pixel's box."""
    scale = size / target
    support = 0.5 * max(1.0, scale)
    centres = (np.arange(target) + 0.5) * scale
    distance = np.arange(size) + 0.5 - centres[:, None]
    inside = (distance > -support) & (distance <= support)
    return (inside / inside.sum(axis=1, keepdims=True)).astype(np.float32)


def filtered(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Correlation with a small odd kernel; borders mirrored without repeating the edge."""
    reach = kernel.shape[0] // 2
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(reach, reach)] * 2, mode="reflect")
    height, width = x.shape[-2:]
    out = np.zeros_like(x)
    for i, j in zip(*np.nonzero(kernel), strict=True):
        out += np.float32(kernel[i, j]) * padded[..., i : i + height, j : j + width]
    return out


def sample(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Bilinear samples of x (n, c, h, w) at float positions (n, h', w'); borders are mirrored."""
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


def project(x: np.ndarray, back: np.ndarray) -> np.ndarray:
    """Warp every image. The 3x3 matrix `back` (one for all, or one each) maps a position (x, y, 1) of
    the result to one of the image, both measured from the image's centre."""
    count, _, height, width = x.shape
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    middle = (height - 1) / 2, (width - 1) / 2
    points = np.stack([columns - middle[1], rows - middle[0], np.ones_like(rows)])
    back = np.broadcast_to(back, (count, 3, 3)).astype(np.float32)
    u, v, depth = (sum(back[:, i, j, None, None] * points[j] for j in range(3)) for i in range(3))
    return sample(x, v / depth + middle[0], u / depth + middle[1])
