"""Noise: every value on its own. Images are float32 in [0,1]; the caller clips the result."""

from __future__ import annotations

import numpy as np

from harness.data.corruptions.draws import Draws


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
