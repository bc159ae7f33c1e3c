"""Textures: plasma for fog; frost from photographs, if a package has them, or drawn.

The photographs behind CIFAR-10-C ship inside the PyPI package `imagecorruptions` 1.1.2
(`pip install --no-deps imagecorruptions==1.1.2`); only its files are read, its code never runs.
"""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from harness.data.corruptions.linear import bilinear_matrix, gaussian, separable
from harness.data.corruptions.noise import Draws

_PHOTOGRAPHS = tuple(f"frost{i}.{'png' if i < 4 else 'jpg'}" for i in range(1, 7))
_SHRINK = 0.2  # of a photograph, for a 32-pixel image


def plasma(draws: Draws, size: int, decay: float) -> np.ndarray:
    """Plasma (n, m, m) in [0,1], m the next power of two.

    The diamond-square method on a torus: first the middle of each square from its corners, then
    the middle of each edge from its four neighbours; displacements shrink by `decay` per octave.
    """
    size = 1 << (size - 1).bit_length()
    first = draws.uniform(-1, 1, 1)
    height = np.zeros((len(first), size, size), np.float32)
    step, wobble = size, 1.0
    while step >= 2:
        half, count = step // 2, size // step
        corners = height[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        middles = (pairs + np.roll(pairs, -1, axis=2)) / 4
        middles = middles + draws.uniform(-wobble, wobble, count, count)
        height[:, half::step, half::step] = middles
        across = corners + np.roll(corners, -1, axis=2) + middles + np.roll(middles, 1, axis=1)
        height[:, ::step, half::step] = across / 4 + draws.uniform(-wobble, wobble, count, count)
        along = corners + np.roll(corners, -1, axis=1) + middles + np.roll(middles, 1, axis=2)
        height[:, half::step, ::step] = along / 4 + draws.uniform(-wobble, wobble, count, count)
        step, wobble = half, wobble / decay
    height -= height.min(axis=(1, 2), keepdims=True)
    return height / height.max(axis=(1, 2), keepdims=True)


def frost_folder() -> Path | None:
    """The folder of the photographs, if the package is installed."""
    package = find_spec("imagecorruptions")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "frost"
    return folder if all((folder / name).exists() for name in _PHOTOGRAPHS) else None


def frost_source() -> str:
    return "drawn" if frost_folder() is None else "photographs of imagecorruptions"


def frost_textures(side: int) -> tuple[np.ndarray, ...]:
    """Six textures (3, h, w) in [0,1], at the scale of an image of that side."""
    return _textures(side, frost_folder())


@lru_cache(maxsize=8)
def _textures(side: int, folder: Path | None) -> tuple[np.ndarray, ...]:
    scale = _SHRINK * side / 32
    if folder is None:
        return tuple(_shrunk(_drawn(number), scale) for number in range(len(_PHOTOGRAPHS)))
    return tuple(_shrunk(_photograph(folder / name), scale) for name in _PHOTOGRAPHS)


def _photograph(file: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(file) as image:
        pixels = np.asarray(image.convert("RGB"), np.float32)
    return pixels.transpose(2, 0, 1) / 255


def _shrunk(texture: np.ndarray, scale: float) -> np.ndarray:
    """The texture in a smaller size, sampled rather than averaged, which would blur the crystals."""
    matrices = []
    for size in texture.shape[1:]:
        target = round(size * scale)
        matrices.append(bilinear_matrix(size, (np.arange(target) + 0.5) / scale - 0.5))
    return separable(texture, *matrices)


_TINT = np.array([0.85, 1.0, 1.1], np.float32)[:, None, None]
_LEVELS = (0.51, 0.81, 0.81, 0.60, 0.48, 0.36)  # the mean brightness of the photographs


@lru_cache(maxsize=len(_PHOTOGRAPHS))
def _drawn(number: int) -> np.ndarray:
    """A drawing of frost on a window: stems with branches at 60 degrees on a milky ground."""
    rng = np.random.default_rng(number)
    height, width = 400, 600
    ice = np.zeros((height, width), np.float32)
    for _ in range(90):
        start, heading = rng.uniform((0, 0), (height, width)), rng.uniform(0, 2 * np.pi)
        length, glow = rng.uniform(40, 200), rng.uniform(0.4, 1)
        _line(ice, start, heading, length, glow)
        for along in np.arange(4, length, 6):
            root = start + along * np.array([np.sin(heading), np.cos(heading)])
            for turn in (-np.pi / 3, np.pi / 3):
                reach = (length - along) * rng.uniform(0.1, 0.45)
                _line(ice, root, heading + turn, reach, 0.7 * glow)
    ice = gaussian(np.minimum(ice, 1.5), 1.2)
    milk = plasma(Draws(number, 0, 1), 512, 1.8)[0, :height]
    milk = np.concatenate([milk, milk[:, : width - milk.shape[1]]], axis=1)  # it is a torus
    grain = gaussian(rng.normal(size=(height, width)).astype(np.float32), 1.5)
    level = 0.45 * milk + 0.55 * ice * (0.4 + 0.6 * milk) + 0.25 * grain
    level = _LEVELS[number] + 0.15 * (level - level.mean()) / level.std()
    return np.clip(level * _TINT, 0, 1).astype(np.float32)


def _line(ice: np.ndarray, start: np.ndarray, heading: float, length: float, glow: float) -> None:
    """Draw a needle that fades towards its tip."""
    along = np.arange(0, length, 0.7)
    rows = (start[0] + along * np.sin(heading)).astype(int)
    columns = (start[1] + along * np.cos(heading)).astype(int)
    inside = (rows >= 0) & (rows < ice.shape[0]) & (columns >= 0) & (columns < ice.shape[1])
    fading = (glow * (1 - along / length)).astype(np.float32)
    np.add.at(ice, (rows[inside], columns[inside]), fading[inside])
