"""The strengths of CIFAR-10-C at severities 1 to 5. Lengths are in pixels of a 32-pixel image."""

STRENGTHS: dict[str, tuple[tuple[float, ...], ...]] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),  # sigma
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),  # photons at full brightness
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),  # share of values
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),  # sigma
    # disk radius, sigma of its softened rim
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    # sigma, largest shift, rounds
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, sigma
    "zoom_blur": ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,)),  # largest zoom
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),  # sigma
    # mean, deviation, zoom, threshold, streak radius, streak sigma, weight of the image
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),  # image, frost
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # amplitude, decay
    # mean, deviation, sigma, threshold, opacity, mud rather than water
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),  # added to V of HSV
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),  # factor
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),  # S of HSV: factor, added
    # shift, its sigma, affine jitter; as fractions of the side
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),  # size kept
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),  # quality
}
