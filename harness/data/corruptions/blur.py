"""Blurs. Images are float32 in [0,1]; the caller clips the result."""

import numpy as np

from harness.data.corruptions.linear import filtered, gaussian, pixels, separable, zoom_matrix
from harness.data.corruptions.noise import Draws


def gaussian_blur(x: np.ndarray, draws: Draws, sigma: float) -> np.ndarray:
    return gaussian(x, pixels(x, sigma))


def defocus_blur(x: np.ndarray, draws: Draws, radius: float, rim: float) -> np.ndarray:
    """A disk whose rim is softened by a 3x3 Gaussian."""
    radius, rim = pixels(x, radius), pixels(x, rim)
    reach = int(radius) + 2
    offsets = np.arange(-reach, reach + 1)
    disk = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float32)
    soft = np.exp(-0.5 * (np.arange(-1, 2) / rim) ** 2)
    kernel = filtered(disk, np.outer(soft, soft))
    return filtered(x, kernel / kernel.sum())


def glass_blur(x: np.ndarray, draws: Draws, sigma: float, shift: float, rounds: int) -> np.ndarray:
    """Between two blurs, every pixel takes the colour of a near one, mostly above or left of it.

    The paper shuffles neighbours, but the released code, which made CIFAR-10-C, copies one over the
    other. As there, offsets are -shift .. shift-1 and a margin stays unchanged.
    """
    sigma, shift = pixels(x, sigma), round(pixels(x, shift))
    count, channels, height, width = x.shape
    out = gaussian(x, sigma)
    rows, columns = np.mgrid[:height, :width]
    inside = (rows > shift) & (rows <= height - shift) & (columns > shift)
    inside &= columns <= width - shift
    for _ in range(rounds):
        moves = np.where(inside, draws.integers(2 * shift, 2, height, width) - shift, 0)
        near = (rows + moves[:, 0]) * width + columns + moves[:, 1]
        flat = out.reshape(count, channels, -1)
        out = np.take_along_axis(flat, near.reshape(count, 1, -1), axis=2).reshape(x.shape)
    return gaussian(out, sigma)


def motion_blur(x: np.ndarray, draws: Draws, radius: float, sigma: float) -> np.ndarray:
    return streaks(x, pixels(x, radius), pixels(x, sigma), angles=draws.uniform(-45, 45))


def streaks(x: np.ndarray, radius: float, sigma: float, angles: np.ndarray) -> np.ndarray:
    """Each image smeared to one side along its angle (degrees), by half a Gaussian."""
    taps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    taps, weights = taps[weights > 1e-5], weights[weights > 1e-5]
    weights = (weights / weights.sum()).astype(np.float32)
    turned = np.deg2rad(angles.astype(np.float64))[:, None]
    down = np.rint(taps * np.sin(turned)).astype(int)
    right = np.rint(taps * np.cos(turned)).astype(int)
    height, width = x.shape[2:]
    reach = int(taps[-1])
    padded = np.pad(x, [(0, 0), (0, 0), (reach, reach), (reach, reach)], mode="edge")
    out = np.zeros_like(x)
    for image, result, rows, columns in zip(padded, out, down + reach, right + reach, strict=True):
        for i, j, weight in zip(rows.tolist(), columns.tolist(), weights, strict=True):
            result += weight * image[:, i : i + height, j : j + width]
    return out


def zoom_blur(x: np.ndarray, draws: Draws, largest: float) -> np.ndarray:
    """The mean over zooms 1, 1.01 .. `largest`."""
    zooms = 1 + 0.01 * np.arange(round(100 * (largest - 1)) + 1)
    total = sum((zoomed(x, zoom) for zoom in zooms), start=np.zeros_like(x))
    return total / np.float32(len(zooms))


def zoomed(x: np.ndarray, zoom: float) -> np.ndarray:
    return separable(x, *(zoom_matrix(size, float(zoom)) for size in x.shape[-2:]))
