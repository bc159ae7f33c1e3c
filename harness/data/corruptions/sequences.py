"""Perturbation sequences (CIFAR-10-P): each image becomes a short film.

    film(x, "tilt", seed=0) -> uint8 (n, T, c, h, w)

Noise: frame 0 is clean, every other frame has its own draw. All other films change step by step.
Lengths are fractions of the image, borders are mirrored. The papers give no numbers for `spatter`
and no geometry for `tilt`; ours are: one field of drops (severity 1) that runs down one pixel of 32
per frame, and a camera one diagonal away that turns about both axes of the image.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.core.errors import unknown
from harness.core.paths import seed_from
from harness.data.corruptions import check_images, noise, to_bytes, to_unit
from harness.data.corruptions.blur import streaks, zoomed
from harness.data.corruptions.digital import brightened
from harness.data.corruptions.linear import gaussian, pixels, project, side
from harness.data.corruptions.noise import Draws
from harness.data.corruptions.strengths import STRENGTHS
from harness.data.corruptions.weather import drops, splash

FRAMES = {
    "gaussian_noise": 31,
    "shot_noise": 31,
    "motion_blur": 21,
    "zoom_blur": 31,
    "spatter": 31,
    "brightness": 31,
    "translate": 16,
    "rotate": 31,
    "tilt": 31,
    "scale": 31,
}
NOISE = ("gaussian_noise", "shot_noise")
_CHUNK = 100  # images


def film(x: np.ndarray, name: str, seed: int = 0, first: int = 0) -> np.ndarray:
    if name not in FRAMES:
        raise unknown("sequence", name, FRAMES, "harness/data/corruptions/sequences.py")
    check_images(x)
    out = np.empty((len(x), FRAMES[name], *x.shape[1:]), np.uint8)
    stream = seed_from(seed, name, "sequence")
    for start in range(0, len(x), _CHUNK):
        part = to_unit(x[start : start + _CHUNK])
        frame = _FILMS[name](part, Draws(stream, first + start, len(part)))
        for i in range(FRAMES[name]):
            out[start : start + _CHUNK, i] = to_bytes(frame(i))
    return out


Frame = Callable[[int], np.ndarray]


def _gaussian_noise(x: np.ndarray, draws: Draws) -> Frame:
    return lambda i: noise.gaussian_noise(x, draws, 0.02) if i else x


def _shot_noise(x: np.ndarray, draws: Draws) -> Frame:
    return lambda i: noise.shot_noise(x, draws, 700) if i else x


def _motion_blur(x: np.ndarray, draws: Draws) -> Frame:
    radius, sigma = pixels(x, 6), pixels(x, 1.8)
    return lambda i: streaks(x, radius, sigma, np.full(len(x), 9.0 * (i - 20)))


def _zoom_blur(x: np.ndarray, draws: Draws) -> Frame:
    """The running mean of zooms 1 + .004 i."""
    total = np.zeros_like(x)

    def frame(i: int) -> np.ndarray:
        total[:] += zoomed(x, 1 + 0.004 * i)
        return total / np.float32(i + 1)

    return frame


def _spatter(x: np.ndarray, draws: Draws) -> Frame:
    mean, deviation, sigma, threshold, opacity, _ = STRENGTHS["spatter"][0]
    height, width = x.shape[2:]
    run = [round(i * side(x)) for i in range(FRAMES["spatter"])]
    field = np.float32(mean) + np.float32(deviation) * draws.normal(1, height + run[-1], width)
    wet = drops(gaussian(field, pixels(x, sigma)), threshold, max(1.0, side(x)))

    def frame(i: int) -> np.ndarray:
        top = run[-1] - run[i]
        return splash(x, wet[:, :, top : top + height], opacity)

    return frame


def _brightness(x: np.ndarray, draws: Draws) -> Frame:
    return lambda i: brightened(x, 0.015 * (i - 15))


def _translate(x: np.ndarray, draws: Draws) -> Frame:
    return lambda i: project(x, _matrix(shift=(i - 7) * side(x)))


def _rotate(x: np.ndarray, draws: Draws) -> Frame:
    return lambda i: project(x, _matrix(degrees=i - 15))


def _scale(x: np.ndarray, draws: Draws) -> Frame:
    return lambda i: project(x, _matrix(scale=0.70 + 0.02 * i))


def _matrix(shift: float = 0, degrees: float = 0, scale: float = 1) -> np.ndarray:
    """From a position of the result back to one of the image."""
    angle = np.deg2rad(degrees)
    cosine, sine = np.cos(angle) / scale, np.sin(angle) / scale
    return np.array([[cosine, -sine, -shift], [sine, cosine, 0], [0, 0, 1]])


def _tilt(x: np.ndarray, draws: Draws) -> Frame:
    distance = float(np.hypot(*x.shape[2:]))

    def frame(i: int) -> np.ndarray:
        angle = np.deg2rad(0.75 * (i - 15))
        cosine, sine = np.cos(angle), np.sin(angle)
        about_x = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
        about_y = np.array([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]])
        turned = about_x @ about_y
        # A point (x, y) of the picture lies at (x, y, 0); the camera sees it from `distance`.
        forth = np.array(
            [
                [distance * turned[0, 0], distance * turned[0, 1], 0],
                [distance * turned[1, 0], distance * turned[1, 1], 0],
                [turned[2, 0], turned[2, 1], distance],
            ]
        )
        return project(x, np.linalg.inv(forth))

    return frame


_FILMS: dict[str, Callable[[np.ndarray, Draws], Frame]] = {
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


def flips(predicted: np.ndarray, name: str) -> np.ndarray:
    """Where the prediction (n, T) changes: against frame 0 for noise, else the frame before."""
    noise = name.rpartition("/")[2] in NOISE
    before = predicted[:, :1] if noise else predicted[:, :-1]
    return predicted[:, 1:] != before
