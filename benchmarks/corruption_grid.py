"""Draw docs/corruptions.png: two test images of CIFAR-10 under every corruption and severity.

python benchmarks/corruption_grid.py docs/corruptions.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from harness.data import load
from harness.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt

ROWS = (5, 90)  # test images: a frog, and one with large plain areas
SIDE, GAP, LABEL, HEAD = 64, 2, 112, 14


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the grid of corruptions.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--images", type=int, nargs="+", default=ROWS)
    options = parser.parse_args()
    x = load("cifar10", "test").x[list(options.images)]
    columns = (len(SEVERITIES) + 1) * len(x)
    size = (LABEL + columns * (SIDE + GAP), HEAD + len(CORRUPTIONS) * (SIDE + GAP))
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for column in range(columns):
        severity = column % (len(SEVERITIES) + 1)
        label = f"severity {severity}" if severity else "clean"
        draw.text((LABEL + column * (SIDE + GAP) + 4, 1), label, "black")
    for row, name in enumerate(CORRUPTIONS):
        top = HEAD + row * (SIDE + GAP)
        draw.text((2, top + SIDE // 2 - 6), name, "black")
        for column, picture in enumerate(_pictures(x, name)):
            tile = Image.fromarray(picture.transpose(1, 2, 0)).resize((SIDE, SIDE), 0)
            sheet.paste(tile, (LABEL + column * (SIDE + GAP), top))
    sheet.quantize(256, dither=Image.Dither.NONE).save(options.file, optimize=True)


def _pictures(x: np.ndarray, name: str) -> list[np.ndarray]:
    sets = [corrupt(x, name, severity) for severity in (0, *SEVERITIES)]
    return [images[number] for number in range(len(x)) for images in sets]


if __name__ == "__main__":
    main()
