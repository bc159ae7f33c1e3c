"""Snow, frost, fog and spatter. Images are float32 in [0,1]; the caller clips the result."""

import numpy as np

from harness.data.corruptions.blur import streaks, zoomed
from harness.data.corruptions.linear import filtered, gaussian, pixels
from harness.data.corruptions.noise import Draws
from harness.data.corruptions.textures import frost_textures, plasma

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
WATER = np.array([175, 238, 238], np.float32) / 255
MUD = np.array([63, 42, 20], np.float32) / 255


def grey(x: np.ndarray) -> np.ndarray:
    return x if x.shape[1] == 1 else (x * LUMA[:, None, None]).sum(axis=1, keepdims=True)


def coloured(colour: np.ndarray, channels: int) -> np.ndarray:
    """(channels, 1, 1); a grey image gets the colour's luminance."""
    values = colour if channels == 3 else np.array([colour @ LUMA])
    return values[:, None, None].astype(np.float32)


def snow(x: np.ndarray, draws: Draws, *strengths: float) -> np.ndarray:
    """Bright specks, smeared in one direction, over a brightened image, which weighs `weight`."""
    mean, deviation, zoom, threshold, radius, sigma, weight = strengths
    layer = np.float32(mean) + np.float32(deviation) * draws.normal(1, *x.shape[2:])
    layer = zoomed(layer, zoom)
    layer = np.clip(np.where(layer < threshold, 0, layer), 0, 1).astype(np.float32)
    angles = draws.uniform(-135, -45)
    layer = streaks(layer, pixels(x, radius), pixels(x, sigma), angles)
    pale = np.maximum(x, grey(x) * np.float32(1.5) + np.float32(0.5))
    whitened = np.float32(weight) * x + np.float32(1 - weight) * pale
    return whitened + layer + layer[:, :, ::-1, ::-1]


def frost(x: np.ndarray, draws: Draws, image: float, weight: float) -> np.ndarray:
    height, width = x.shape[2:]
    textures = frost_textures(max(height, width))
    out = np.float32(image) * x
    choice = draws.integers(len(textures))
    corner = draws.uniform(0, 1, 2)
    for result, number, (down, right) in zip(out, choice, corner, strict=True):
        texture = textures[number]
        i = int(down * (texture.shape[1] - height + 1))
        j = int(right * (texture.shape[2] - width + 1))
        crop = texture[None, :, i : i + height, j : j + width]
        result += np.float32(weight) * (crop if len(result) == 3 else grey(crop))[0]
    return out


def fog(x: np.ndarray, draws: Draws, amplitude: float, decay: float) -> np.ndarray:
    """Plasma is added, then the range is scaled back, so thick fog lowers the contrast."""
    height, width = x.shape[2:]
    cloud = plasma(draws, max(height, width), decay)[:, None, :height, :width]
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    shrink = brightest / (brightest + np.float32(amplitude))
    return (x + np.float32(amplitude) * cloud) * shrink


def spatter(x: np.ndarray, draws: Draws, *strengths: float) -> np.ndarray:
    mean, deviation, sigma, threshold, opacity, mud = strengths  # mud rather than water
    layer = np.float32(mean) + np.float32(deviation) * draws.normal(1, *x.shape[2:])
    layer = gaussian(layer, pixels(x, sigma))
    if mud:
        wet = gaussian((layer > threshold).astype(np.float32), pixels(x, opacity))
        wet[wet < 0.8] = 0
        return x * (1 - wet) + coloured(MUD, x.shape[1]) * wet
    return splash(x, drops(layer, threshold, pixels(x, 20)), opacity)


def splash(x: np.ndarray, wet: np.ndarray, opacity: float) -> np.ndarray:
    return x + np.float32(opacity) * wet * coloured(WATER, x.shape[1])


_BOX = np.full((3, 3), 1 / 9, np.float32)
_LIGHT = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)  # from the upper left


def drops(layer: np.ndarray, threshold: float, highest: float) -> np.ndarray:
    """Drops of water where the layer is above the threshold: in [0,1], shaded from one side.

    The relief is the distance to the nearest rim, at most `highest`, with its histogram equalised.
    """
    from scipy.ndimage import binary_erosion, distance_transform_edt

    liquid = np.where(layer < threshold, 0, layer).astype(np.float32)
    relief = np.zeros_like(liquid)
    for mask, result in zip(liquid[:, 0] > 0, relief[:, 0], strict=True):
        rim = mask & ~binary_erosion(mask, border_value=1)  # its pixels with a neighbour outside it
        if rim.any():
            result[:] = np.minimum(distance_transform_edt(~rim), highest)
    relief = _equalised(filtered(relief, _BOX))
    relief = filtered(np.clip(filtered(relief, _LIGHT), 0, 1), _BOX)
    wet = liquid * relief
    return wet / np.maximum(wet.max(axis=(1, 2, 3), keepdims=True), np.float32(1e-6))


def _equalised(relief: np.ndarray) -> np.ndarray:
    """Histogram equalisation, image by image, in 256 steps."""
    out = np.zeros_like(relief)
    for values, result in zip(relief[:, 0], out[:, 0], strict=True):
        levels = np.rint(values * (255 / max(float(values.max()), 1e-6))).astype(np.int64)
        below = np.cumsum(np.bincount(levels.ravel(), minlength=256))
        start = below[levels.min()]
        spread = max(1, levels.size - int(start))
        result[:] = ((below - start) / spread)[levels]
    return out
