"""A figure for the page: an SVG in the reader's light or dark theme, its photographs as WebP.

Matplotlib's SVG with each colour as a variable, which has a second value in the dark. Letters stay
letters. It is a third as large: styles are written once, places to a hundredth of a point, and what
only an editor needs is left out.
"""

import base64
import io
import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from PIL import Image

from harness.reports.palette import in_the_dark

SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "figure"}  # the same figure, the same bytes
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_PNG, _WEBP = "data:image/png;base64,", "data:image/webp;base64,"
_QUALITY = 65
_INK = "#000000"  # of what names no colour
_PLACES = ("d", "x", "y", "width", "height", "transform", "points")
_ALL = (
    "* { stroke-linejoin: round; stroke-linecap: butt }",
    "text { font-family: 'DejaVu Sans', Verdana, sans-serif; white-space: pre }",
)


def themed(svg: bytes) -> bytes:
    """What Matplotlib wrote, smaller, and with two values for each colour."""
    ElementTree.register_namespace("", _SVG.strip("{}"))
    root, text = ElementTree.fromstring(svg), svg.decode()
    classes: dict[str, str] = {}  # style -> class
    for element in list(root.iter()):
        element[:] = [child for child in element if not child.tag.endswith(("metadata", "}style"))]
        if element.tag not in (f"{_SVG}text", f"{_SVG}tspan"):
            element.text = None  # Matplotlib indents
        if element.tag != f"{_SVG}tspan":
            element.tail = None
        if f"#{element.get('id')}" not in text:  # nothing points to it
            element.attrib.pop("id", None)
        _compact(element)
        if style := element.attrib.pop("style", None):
            element.set("class", classes.setdefault(_plain(style), f"s{len(classes)}"))
    _unwrap(root)
    root.set("fill", _variable(_INK))
    sheet = Element(f"{_SVG}style")
    rules = [f".{name} {{ {style} }}" for style, name in classes.items()]
    used = sorted({_INK, *re.findall(r"#[0-9a-f]{6}\b", " ".join(classes))})
    rules = [re.sub(r"#[0-9a-f]{6}\b", lambda found: _variable(found[0]), rule) for rule in rules]
    sheet.text = "\n".join([*_ALL, *rules, *_themes(used)])
    root.insert(0, sheet)
    return ElementTree.tostring(root, encoding="utf-8")


def _plain(style: str) -> str:
    """Without Matplotlib's long list of fonts."""
    style = re.sub(r"font-family:[^;]*;? ?", "", style)
    return re.sub(r"font: ([^;]*?)([\d.]+px)[^;]*", r"font-size: \2", style)


def _compact(element: Element) -> None:
    for name in _PLACES:
        if value := element.get(name):
            short = re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 2):g}", value)
            short = re.sub(r"rotate\(-?0 [^)]*\)", "", short)
            element.set(name, re.sub(r"\s+", " ", short).strip())
    if element.get("transform") == "":
        del element.attrib["transform"]
    if source := element.attrib.pop(_LINK, None):
        element.set("href", _webp(source) if source.startswith(_PNG) else source)


def _unwrap(parent: Element) -> None:
    """Removes groups that say nothing of what is in them."""
    for child in parent:
        _unwrap(child)
    parent[:] = [
        one
        for child in parent
        for one in (child if child.tag == f"{_SVG}g" and not child.attrib else [child])
    ]


def _webp(source: str) -> str:
    buffer, png = io.BytesIO(), base64.b64decode(source.removeprefix(_PNG))
    with Image.open(io.BytesIO(png)) as image:
        few = image.getcolors() is not None  # a table in colours, and no photograph
        image.save(buffer, "WEBP", quality=_QUALITY, lossless=few)
    return _WEBP + base64.b64encode(buffer.getvalue()).decode()


def _variable(colour: str) -> str:
    return f"var(--c{colour[1:]})"


def _themes(used: list[str]) -> list[str]:
    light = "; ".join(f"--c{colour[1:]}: {colour}" for colour in used)
    dark = "; ".join(f"--c{colour[1:]}: {in_the_dark(colour)}" for colour in used)
    return [f":root {{ {light} }}", f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"]
