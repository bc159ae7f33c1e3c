"""Random numbers per image, and noise. Images are float32 in [0,1]; the caller clips the result."""

import numpy as np


class Draws:
    """Random numbers for a batch: image i always draws from the stream (seed, first + i)."""

    def __init__(self, seed: int, first: int, count: int) -> None:
        self._streams = [
            np.random.Generator(np.random.Philox(key=np.array([seed, first + i], np.uint64)))
            for i in range(count)
        ]

    def normal(self, *shape: int) -> np.ndarray:
        return np.stack([s.standard_normal(shape, dtype=np.float32) for s in self._streams])

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        unit = np.stack([stream.random(shape, dtype=np.float32) for stream in self._streams])
        return np.float32(low) + np.float32(high - low) * unit

    def integers(self, high: int, *shape: int) -> np.ndarray:
        return np.stack([stream.integers(high, size=shape) for stream in self._streams])

    def poisson(self, means: np.ndarray) -> np.ndarray:
        rows = zip(self._streams, means, strict=True)
        return np.stack([stream.poisson(mean) for stream, mean in rows]).astype(np.float32)


def gaussian_noise(x: np.ndarray, draws: Draws, sigma: float) -> np.ndarray:
    return x + np.float32(sigma) * draws.normal(*x.shape[1:])


def shot_noise(x: np.ndarray, draws: Draws, photons: float) -> np.ndarray:
    return draws.poisson(x * np.float32(photons)) / np.float32(photons)


def impulse_noise(x: np.ndarray, draws: Draws, amount: float) -> np.ndarray:
    """Salt and pepper in equal parts, each colour channel on its own."""
    level = draws.uniform(0, 1, *x.shape[1:])
    return np.where(level < amount / 2, 0, np.where(level < amount, 1, x)).astype(np.float32)


def speckle_noise(x: np.ndarray, draws: Draws, sigma: float) -> np.ndarray:
    return x + np.float32(sigma) * x * draws.normal(*x.shape[1:])
