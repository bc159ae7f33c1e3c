"""Brightness, contrast, colour, and what processing does. Images are float32 in [0,1]."""

import io

import numpy as np

from harness.data.corruptions.linear import box_matrix, gaussian, project, sample, separable
from harness.data.corruptions.noise import Draws


def brightness(x: np.ndarray, draws: Draws, added: float) -> np.ndarray:
    """V of HSV shifted; hue and saturation stay, so all channels grow by the same factor."""
    value = x.max(axis=1, keepdims=True)
    target = np.clip(value + np.float32(added), 0, 1)
    return np.where(value > 0, x * (target / np.maximum(value, np.float32(1e-6))), target)


def contrast(x: np.ndarray, draws: Draws, factor: float) -> np.ndarray:
    mean = x.mean(axis=(2, 3), keepdims=True)
    return (x - mean) * np.float32(factor) + mean


def saturate(x: np.ndarray, draws: Draws, factor: float, added: float) -> np.ndarray:
    """S of HSV scaled and shifted. A grey pixel has no hue; as in HSV's usual code, it is red."""
    if x.shape[1] == 1:
        return x
    value = x.max(axis=1, keepdims=True)
    depth = value - x.min(axis=1, keepdims=True)
    saturation = depth / np.maximum(value, np.float32(1e-6))
    target = np.clip(saturation * np.float32(factor) + np.float32(added), 0, 1)
    # 0 in the largest channel, 1 in the least
    fraction = (value - x) / np.maximum(depth, np.float32(1e-6))
    red = np.array([0, 1, 1], np.float32)[:, None, None]
    return value * (1 - target * np.where(depth > 0, fraction, red))


def elastic_transform(
    x: np.ndarray, draws: Draws, shift: float, sigma: float, jitter: float
) -> np.ndarray:
    """Three points of the image are moved, all others follow (affine); then each pixel is shifted
    by smooth noise. The strengths are fractions of the side."""
    height, width = x.shape[2:]
    size = min(height, width)
    third = size // 3
    points = np.array([[third, third, 1], [third, -third, 1], [-third, -third, 1]], np.float64)
    moved = np.repeat(points[None], len(x), axis=0)
    moved[:, :, :2] += draws.uniform(-jitter * size, jitter * size, 3, 2)
    # Rows p of `points` and q of `moved` with p = q @ A, so the way back is A transposed.
    back = np.linalg.solve(moved, np.broadcast_to(points, moved.shape)).transpose(0, 2, 1)
    out = project(x, back)
    if shift == 0:
        return out
    noise = draws.uniform(-1, 1, 2, height, width)
    moves = gaussian(noise, sigma * size, "symmetric", 3) * np.float32(shift * size)
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    return sample(out, rows + moves[:, 0], columns + moves[:, 1])


def pixelate(x: np.ndarray, draws: Draws, kept: float) -> np.ndarray:
    """Down and up again with a box filter, in uint8, as image libraries do it."""
    height, width = x.shape[2:]
    small = int(height * kept), int(width * kept)
    shrunk = separable(x * 255, box_matrix(height, small[0]), box_matrix(width, small[1]))
    grown = separable(np.rint(shrunk), box_matrix(small[0], height), box_matrix(small[1], width))
    return grown / np.float32(255)


def jpeg_compression(x: np.ndarray, draws: Draws, quality: int) -> np.ndarray:
    from PIL import Image

    pixels = np.rint(x * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    out = np.empty_like(pixels)
    for image, result in zip(pixels, out, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image.squeeze()).save(buffer, "JPEG", quality=quality)
        result[:] = np.asarray(Image.open(buffer)).reshape(result.shape)
    return out.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
