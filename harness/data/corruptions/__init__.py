"""Common corruptions (Hendrycks & Dietterich, ICLR 2019), made in batches from a seed.

    corrupt(x, "fog", severity=3, seed=0) -> x'        uint8 (n, c, h, w) in and out

The strengths are those of CIFAR-10-C and hold at 32 pixels. At other sizes (8 to 64 pixels a side):
  - fractions of the image stay fractions: elastic shifts, plasma, frost crops, sequences' moves;
  - lengths in pixels (blurs, glass, streaks, drops) grow with the shorter side above 32 pixels and stay
    the same below, where a pixel is the smallest possible length;
  - strengths of values (noise, contrast, brightness, JPEG quality) are the same at every size.
Grey images are treated as colour images without colour; `saturate` does not change them.

Every image has its own random stream, from the seed, the corruption, the severity and the image's
number, so a batch gives what its images give one by one. The code is ours and follows the
procedures and strengths of the released one, with other random numbers and image libraries: images
should agree in kind and strength, not in bits. They have not been compared with the official
archive yet. Values are rounded to uint8; the released code truncates them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.core.errors import expected, unknown
from harness.core.identity import seed_from
from harness.data.corruptions import blur, digital, noise, weather
from harness.data.corruptions.noise import Draws
from harness.data.corruptions.strengths import STRENGTHS

REVISION = 1  # raise it when generated images change
SEVERITIES = (1, 2, 3, 4, 5)
SIDES = (8, 64)

MAIN: dict[str, Callable[..., np.ndarray]] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": digital.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
}
EXTRA: dict[str, Callable[..., np.ndarray]] = {
    "speckle_noise": noise.speckle_noise,
    "gaussian_blur": blur.gaussian_blur,
    "spatter": weather.spatter,
    "saturate": digital.saturate,
}
CORRUPTIONS = MAIN | EXTRA


def corrupt(x: np.ndarray, name: str, severity: int, seed: int = 0, first: int = 0) -> np.ndarray:
    """`x` corrupted; severity 0 is `x` itself. `first` is the number of the first image."""
    if name not in CORRUPTIONS:
        raise unknown("corruption", name, CORRUPTIONS, "harness/data/corruptions")
    if severity not in (0, *SEVERITIES):
        raise expected("a severity in 0..5", severity, "choose one of them")
    check_images(x)
    if severity == 0:
        return x.copy()
    draws = Draws(seed_from(seed, name, severity), first, len(x))
    return to_bytes(CORRUPTIONS[name](to_unit(x), draws, *STRENGTHS[name][severity - 1]))


def check_images(x: np.ndarray) -> None:
    low, high = SIDES
    fits = x.ndim == 4 and x.dtype == np.uint8 and x.shape[1] in (1, 3)
    if not fits or not all(low <= side <= high for side in x.shape[2:]):
        raise expected(
            f"uint8 images (n, 1 or 3, h, w) of {low} to {high} pixels a side",
            f"{x.dtype} {x.shape}",
            "resize them, or use the official set",
        )


def to_unit(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / np.float32(255)


def to_bytes(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
