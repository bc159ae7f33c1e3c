"""Perturbation sequences (CIFAR-10-P): each image becomes a short film.

    film(x, "tilt", seed=0) -> uint8 (n, T, c, h, w)

Noise: frame 0 is clean, every other frame has its own draw. All other films change step by step.
Lengths are fractions of the image, borders are mirrored. The papers give no numbers for `spatter`
and no geometry for `tilt`; ours are: one field of drops (severity 1) that runs down one pixel of 32
per frame, and a camera one diagonal away that turns about both axes of the image.
"""

from collections.abc import Callable, Iterator

import numpy as np

from harness.core.errors import unknown
from harness.core.paths import seed_from
from harness.data.corruptions import EXTRA, check_images, digital, noise, to_bytes, to_unit
from harness.data.corruptions.blur import streaks, zoomed
from harness.data.corruptions.linear import gaussian, pixels, project, side
from harness.data.corruptions.noise import Draws
from harness.data.corruptions.weather import drops, splash

NOISE = ("gaussian_noise", "shot_noise")
Frames = Iterator[np.ndarray]


def film(x: np.ndarray, name: str, seed: int = 0, first: int = 0) -> np.ndarray:
    """The film of each image; `first` is the number of the first one."""
    if name not in FRAMES:
        raise unknown("sequence", name, FRAMES, "harness/data/corruptions/sequences.py")
    check_images(x)
    draws = Draws(seed_from(seed, name, "sequence"), first, len(x))
    frames = _FILMS[name](to_unit(x), draws, range(FRAMES[name]))
    return np.stack([to_bytes(frame) for frame in frames], axis=1)


def _gaussian_noise(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    return (noise.gaussian_noise(x, draws, 0.02) if i else x for i in frames)


def _shot_noise(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    return (noise.shot_noise(x, draws, 700) if i else x for i in frames)


def _motion_blur(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    radius, sigma = pixels(x, 6), pixels(x, 1.8)
    return (streaks(x, radius, sigma, np.full(len(x), 9.0 * (i - 20))) for i in frames)


def _zoom_blur(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    """The running mean of zooms 1 + .004 i."""
    total = np.zeros_like(x)
    for i in frames:
        total += zoomed(x, 1 + 0.004 * i)
        yield total / np.float32(i + 1)


def _spatter(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    mean, deviation, sigma, threshold, opacity, _ = EXTRA["spatter"][1]
    height, width = x.shape[2:]
    run = [round(i * side(x)) for i in frames]
    field = np.float32(mean) + np.float32(deviation) * draws.normal(1, height + run[-1], width)
    wet = drops(gaussian(field, pixels(x, sigma)), threshold, pixels(x, 20))
    for top in (run[-1] - down for down in run):
        yield splash(x, wet[:, :, top : top + height], opacity)


def _brightness(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    return (digital.brightness(x, draws, 0.015 * (i - 15)) for i in frames)


def _translate(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    return (project(x, _matrix(shift=(i - 7) * side(x))) for i in frames)


def _rotate(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    return (project(x, _matrix(degrees=i - 15)) for i in frames)


def _scale(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    return (project(x, _matrix(scale=0.70 + 0.02 * i)) for i in frames)


def _matrix(shift: float = 0, degrees: float = 0, scale: float = 1) -> np.ndarray:
    """From a position of the result back to one of the image."""
    angle = np.deg2rad(degrees)
    cosine, sine = np.cos(angle) / scale, np.sin(angle) / scale
    return np.array([[cosine, -sine, -shift], [sine, cosine, 0], [0, 0, 1]])


def _tilt(x: np.ndarray, draws: Draws, frames: range) -> Frames:
    distance = float(np.hypot(*x.shape[2:]))
    for i in frames:
        angle = np.deg2rad(0.75 * (i - 15))
        cosine, sine = np.cos(angle), np.sin(angle)
        about_x = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
        about_y = np.array([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]])
        # A point (x, y) of the picture lies at (x, y, 0); the camera sees it from `distance`.
        forth = about_x @ about_y
        forth[:2] *= distance
        forth[:, 2] = (0, 0, distance)
        yield project(x, np.linalg.inv(forth))


_FILMS: dict[str, Callable[[np.ndarray, Draws, range], Frames]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "spatter": _spatter,
    "brightness": _brightness,
    "translate": _translate,
    "rotate": _rotate,
    "tilt": _tilt,
    "scale": _scale,
}
FRAMES = dict.fromkeys(_FILMS, 31) | {"motion_blur": 21, "translate": 16}


def flips(predicted: np.ndarray, name: str) -> np.ndarray:
    """Where the prediction (n, T) changes: against frame 0 for noise, else the frame before."""
    noise = name.rpartition("/")[2] in NOISE
    before = predicted[:, :1] if noise else predicted[:, :-1]
    return predicted[:, 1:] != before
