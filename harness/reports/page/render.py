"""The templates of the page, with their filters, style and script."""

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import jinja2

from harness.reports.page.finding import said
from harness.reports.page.sparklines import HEIGHT, WIDTH

TEMPLATES = Path(__file__).parent / "templates"
_SYMBOLS = {"l_inf": "ℓ∞", "l_2": "ℓ₂", "l_1": "ℓ₁", "lambda": "λ", "eps": "ε"}
_SYMBOLS |= {"gamma_1": "γ₁", "gamma_2": "γ₂", "gamma": "γ"}
_WORDS = re.compile(rf"\b({'|'.join(_SYMBOLS)})\b")


def symbols(text: str) -> str:
    """Norms and hyper-parameters as symbols: l_inf as ℓ∞, gamma as γ."""
    return _WORDS.sub(lambda found: _SYMBOLS[found[0]], text)


def plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def span(values: Iterable[int]) -> str:
    ordered = sorted(set(values))
    return " to ".join(str(value) for value in dict.fromkeys((ordered[0], ordered[-1])))


def duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def environment() -> jinja2.Environment:
    """Templates with automatic escaping; style and script are inserted from files."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (TEMPLATES / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made.filters |= {"symbols": symbols, "plural": plural, "span": span, "duration": duration}
    made.filters["said"] = said
    made.globals |= {
        "style": (TEMPLATES / "page.css").read_text(),
        "script": script,
        "script_digest": f"sha256-{digest}",
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
    }
    return made
