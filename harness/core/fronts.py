"""Fronts: which pairs of accuracies the models of one family reach. Torch-free.

Of two models one may be drawn by a coin for each image, so every point on the straight line between
two models can be had, and whatever has less of both. A front is the boundary of all these points, the
upper right part of a convex hull. Its area is one number for a family, and depends little on how many
models it has. `gaps` says where a point lies to a front.

Uncertainty is over test images: resamples of them, the same ones for all models, so that differences
are paired. Percentile intervals at 95 %.
"""

from collections.abc import Sequence

import numpy as np

from harness.core.statistics import Difference

RESAMPLES = 2000
_AT_ONCE = 100


def resampled(values: np.ndarray) -> np.ndarray:
    """Means of (..., images) over resampled images: (RESAMPLES, ...); always the same ones."""
    n, generator = values.shape[-1], np.random.default_rng(0)
    flat = values.reshape(-1, n).T.astype(np.float32)
    chunks = []
    for _ in range(0, RESAMPLES, _AT_ONCE):
        drawn = generator.integers(n, size=(_AT_ONCE, n))
        counts = np.stack([np.bincount(own, minlength=n) for own in drawn])
        chunks.append(counts.astype(np.float32) @ flat / n)
    return np.concatenate(chunks).astype(float).reshape(-1, *values.shape[:-1])


def area(points: np.ndarray) -> float:
    """The share of the unit square below and left of a front; points are rows of two accuracies."""
    corner = [(0.0, float(points[:, 1].max()))]
    hull: list[tuple[float, float]] = []
    for x, y in sorted([*corner, *map(tuple, points.tolist())]):
        while len(hull) > 1 and _turns_left(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    across, up = np.transpose(hull)
    return float(np.sum(np.diff(across) * (up[1:] + up[:-1]) / 2))


def _turns_left(one: Sequence[float], two: Sequence[float], three: Sequence[float]) -> bool:
    first, second = (two[0] - one[0], two[1] - one[1]), (three[0] - two[0], three[1] - two[1])
    return first[0] * second[1] - first[1] * second[0] >= 0


def gaps(points: np.ndarray, front: np.ndarray) -> np.ndarray:
    """How far points are above a front: what all its models would have to gain in both accuracies to
    reach them; negative for points below it. Points (..., 2), the front's models (..., models, 2).

    Above means that for some weights w, 1 - w of the two accuracies no model of the front is as good:
    the gap is the largest lead over w. It is reached at 0, at 1, or where two models are equally good.
    """
    x, y = front[..., 0], front[..., 1]
    rise, run = (own[..., :, None] - own[..., None, :] for own in (y, x))
    with np.errstate(divide="ignore", invalid="ignore"):
        equal = np.nan_to_num(rise / (rise - run), nan=0.0, posinf=0.0, neginf=0.0)
    equal = np.clip(equal, 0, 1).reshape(*equal.shape[:-2], -1)
    ends = np.broadcast_to([0.0, 1.0], (*equal.shape[:-1], 2))
    w = np.concatenate([equal, ends], axis=-1)
    best = (w[..., None] * x[..., None, :] + (1 - w[..., None]) * y[..., None, :]).max(axis=-1)
    return (w * points[..., :1] + (1 - w) * points[..., 1:] - best).max(axis=-1)


def bootstrap(found: float, drawn: np.ndarray) -> Difference:
    """A number with the interval of its resamples, and the p-value that it is 0."""
    low, high = np.percentile(drawn, [2.5, 97.5])
    p = 2 * min(float((drawn <= 0).mean()), float((drawn >= 0).mean()))
    return Difference(found, float(low), float(high), min(1.0, max(p, 2 / len(drawn))))
