"""A colour for each method, and the same colour on a dark background.

The first eight are Okabe and Ito's (2008), told apart by people of every colour vision. Each one after
them is the colour that is furthest from all before it and from white, in OKLab (Ottosson 2020), where
equal distances look equal. So no two are the same, and a new one changes none before it.
"""

from collections.abc import Iterable
from functools import cache

import numpy as np

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C3B")
DARK_PAPER, DARK_INK = "#1c2024", "#e4e2dc"  # --raised and --ink of the page in the dark
ON_PICTURE = "#010101"  # letters on a picture that stays as it is, as they do: dark in both themes
_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_LEGIBLE = (0.35, 0.75)  # of OKLab's lightness, on white
_IN_THE_DARK = (0.56, 0.8)  # the same, on DARK_PAPER
_USUAL = 64  # labels of the grid: their colours are found once
_GREY = 0.02  # less colour than this is none


def colour(place: int) -> str:
    """The colour of the n-th method."""
    return _colours(max(place + 1, _USUAL))[place]


def place_of(method: str, labels: Iterable[str]) -> int:
    """Where a method stands in the grid's labels; one that has no label of its own, behind them."""
    known, slug = list(labels), method.partition("@")[0]
    return known.index(slug) if slug in known else len(known)


@cache
def in_the_dark(light: str) -> str:
    """Grey goes from paper to ink; a colour keeps its hue and becomes lighter."""
    if light == ON_PICTURE:
        return light
    lab = oklab([light])[0]
    if np.hypot(*lab[1:]) < _GREY:
        paper, ink = _rgb([DARK_PAPER, DARK_INK])
        return _hex(ink + (paper - ink) * _rgb([light])[0])
    low, high = _LEGIBLE
    share = np.clip((lab[0] - low) / (high - low), 0, 1)
    lab[0] = np.interp(share, (0, 1), _IN_THE_DARK)
    return _hex(_from_oklab(lab))


def oklab(colours: list[str]) -> np.ndarray:
    """Lightness, green to red, blue to yellow: a row for each colour."""
    return _to_oklab(_rgb(colours))


@cache
def _colours(count: int) -> tuple[str, ...]:
    found, (rgb, lab) = list(PALETTE[:count]), _candidates()
    taken = oklab([*PALETTE, "#ffffff"])
    nearest = ((lab[:, None] - taken) ** 2).sum(axis=2).min(axis=1)
    while len(found) < count:
        furthest = nearest.argmax()
        found.append(_hex(rgb[furthest]))
        nearest = np.minimum(nearest, ((lab - lab[furthest]) ** 2).sum(axis=1))
    return tuple(found)


@cache
def _candidates() -> tuple[np.ndarray, np.ndarray]:
    """Colours that can be seen on white, as RGB and in OKLab."""
    steps = np.linspace(0, 1, 16)
    rgb = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    lab = _to_oklab(rgb)
    seen = (lab[:, 0] >= _LEGIBLE[0]) & (lab[:, 0] <= _LEGIBLE[1])
    return rgb[seen], lab[seen]


def _to_oklab(rgb: np.ndarray) -> np.ndarray:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T


def _from_oklab(lab: np.ndarray) -> np.ndarray:
    linear = np.clip(np.linalg.solve(_TO_CONES, np.linalg.solve(_TO_LAB, lab) ** 3), 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def _rgb(colours: list[str]) -> np.ndarray:
    return np.array([[int(one[at : at + 2], 16) for at in (1, 3, 5)] for one in colours]) / 255


def _hex(rgb: np.ndarray) -> str:
    return "#" + "".join(f"{round(255 * float(part)):02x}" for part in rgb)
