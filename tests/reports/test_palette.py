"""Colours: no two the same, in the light or in the dark, and legible on both."""

import numpy as np

from harness.reports.palette import (
    DARK_INK,
    DARK_PAPER,
    ON_PICTURE,
    PALETTE,
    colour,
    in_the_dark,
    oklab,
)

MANY = 70  # the grid has 64 labels


def apart(colours):
    """The distance of the two that are most alike; equal lightness and hue is 0."""
    lab = oklab(colours)
    each = np.linalg.norm(lab[:, None] - lab, axis=2)
    return each[~np.eye(len(colours), dtype=bool)].min()


def test_no_two_methods_share_a_colour():
    light = [colour(place) for place in range(MANY)]
    assert light[: len(PALETTE)] == list(PALETTE)
    assert apart(light) > 0.07
    dark = [in_the_dark(one) for one in light]
    assert apart(dark[:32]) > 0.05  # as many as no figure has
    assert len(set(dark)) == MANY


def test_a_new_colour_changes_none_before_it():
    last = colour(20)
    assert colour(30) != last
    assert colour(20) == last


def test_in_the_dark_paper_and_ink_change_places():
    assert in_the_dark("#ffffff") == DARK_PAPER
    assert in_the_dark("#000000") == DARK_INK
    assert in_the_dark(ON_PICTURE) == ON_PICTURE
    lightness = oklab([in_the_dark(colour(place)) for place in range(MANY)])[:, 0]
    assert lightness.min() > oklab([DARK_PAPER])[0, 0] + 0.3
