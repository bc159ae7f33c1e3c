"""Figures for the page: smaller, in two themes, and nothing but what was drawn."""

import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import pyplot
from PIL import Image

from drills.labels import HOSTILE
from harness.reports.figures.style import pretty
from harness.reports.figures.themed import SETTINGS, themed
from harness.reports.palette import ON_PICTURE

SVG = "{http://www.w3.org/2000/svg}"


def svg_of(label="a label", photograph=False):
    with pyplot.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(figsize=(2, 2))
        axes.plot([0, 1], color="#d55e00", label=pretty(label))
        axes.set_title(pretty(label))
        if photograph:
            axes.imshow(np.random.default_rng(0).random((32, 32, 3)))
        buffer = io.BytesIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # a font lacks some letters
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return buffer.getvalue()


def test_each_colour_has_a_second_value_in_the_dark():
    drawn = svg_of("#d55e00")
    text = themed(drawn).decode()
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    assert "--cd55e00: #d55e00" in light
    assert "--cd55e00: #f97e37" in dark
    named = set(re.findall(r"var\(--c(\w+)\)", text))
    assert {"000000", "ffffff", "d55e00"} <= named
    assert all(f"--c{name}: #" in theme for name in named for theme in (light, dark))
    assert "stroke: var(--cd55e00)" in light
    root = ElementTree.fromstring(text)
    assert "#d55e00" in [element.text for element in root.iter(f"{SVG}text")]  # a label stays
    styles = [element.get("style", "") for element in root.iter()]
    assert not any(styles)  # they are classes
    assert len(text) < 0.6 * len(drawn)
    assert themed(drawn) == themed(drawn)


def test_photographs_are_webp():
    drawn = svg_of(photograph=True)
    root = ElementTree.fromstring(themed(drawn))
    (image,) = root.iter(f"{SVG}image")
    assert webp(image).format == "WEBP"


def webp(image):
    kind, _, data = image.get("href").partition(",")
    assert kind == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_a_table_in_colours_is_kept_to_the_bit_and_letters_on_it_stay_dark():
    with pyplot.rc_context(SETTINGS):
        figure, axes = pyplot.subplots(figsize=(2, 2))
        axes.imshow([[0, 1], [1, 0]], cmap="Blues")
        axes.text(0, 0, "50", color=ON_PICTURE)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg")
        pyplot.close(figure)
    text = themed(buffer.getvalue()).decode()
    (image,) = ElementTree.fromstring(text).iter(f"{SVG}image")
    assert len(webp(image).convert("RGB").getcolors()) == 2
    assert text.count(f"--c010101: {ON_PICTURE}") == 2  # in the light and in the dark


@pytest.mark.parametrize("label", HOSTILE)
def test_a_label_is_text_and_nothing_else(label):
    plain = ElementTree.fromstring(themed(svg_of("harmless")))
    found = ElementTree.fromstring(themed(svg_of(label)))
    tags = {element.tag for element in plain.iter()}
    assert {element.tag for element in found.iter()} <= tags | {f"{SVG}tspan"}
    names = {name for element in found.iter() for name in element.attrib}
    assert not [name for name in names if name.startswith("on")]
