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

from collections.abc import Callable

import numpy as np

from harness.core.errors import expected, unknown
from harness.core.paths import seed_from
from harness.data.corruptions import blur, digital, noise, weather
from harness.data.corruptions.noise import Draws

REVISION = 1  # raise it when generated images change
SEVERITIES = (1, 2, 3, 4, 5)
SIDES = (8, 64)

# A function, and its arguments after the first two in CIFAR-10-C at severities 1 to 5. Lengths are in
# pixels of a 32-pixel image.
Strength = tuple[float, ...]
Corruption = tuple[Callable[..., np.ndarray], Strength, Strength, Strength, Strength, Strength]
MAIN: dict[str, Corruption] = {
    "gaussian_noise": (noise.gaussian_noise, (0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": (noise.shot_noise, (500,), (250,), (100,), (75,), (50,)),  # at full brightness
    "impulse_noise": (noise.impulse_noise, (0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": (blur.defocus_blur, (0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": (blur.glass_blur, (0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": (blur.motion_blur, (6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": (blur.zoom_blur, (1.06,), (1.11,), (1.16,), (1.21,), (1.26,)),
    "snow": (
        weather.snow,
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": (weather.frost, (1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": (weather.fog, (0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": (digital.brightness, (0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": (digital.contrast, (0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": (
        digital.elastic_transform,
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": (digital.pixelate, (0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": (digital.jpeg_compression, (80,), (65,), (58,), (50,), (40,)),
}
EXTRA: dict[str, Corruption] = {
    "speckle_noise": (noise.speckle_noise, (0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "gaussian_blur": (blur.gaussian_blur, (0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    "spatter": (
        weather.spatter,
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": (digital.saturate, (0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
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
    function, *strengths = CORRUPTIONS[name]
    return to_bytes(function(to_unit(x), draws, *strengths[severity - 1]))


def check_images(x: np.ndarray) -> None:
    low, high = SIDES
    fits = x.ndim == 4 and x.dtype == np.uint8 and x.shape[1] in (1, 3)
    if not fits or not all(low <= side <= high for side in x.shape[2:]):
        what = f"uint8 images (n, 1 or 3, h, w) of {low} to {high} pixels a side"
        raise expected(what, f"{x.dtype} {x.shape}", "resize them, or use the official set")


def to_unit(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / np.float32(255)


def to_bytes(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
