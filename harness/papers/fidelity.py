"""Writes docs/fidelity.md from the docstrings of the methods: `generalist-bench fidelity`.

A method's module docstring names its paper in the first sentence and says, in paragraphs or sentences
that begin so, what is `Certain:`, what is a `Guess:`, what a `Deviation:`, and how a training step was
`Compared:` with the method's official code. fidelity.md has the text before the table.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from harness.core.config import read_grid
from harness.core.files import in_markdown
from harness.grid.build import registry

_PARTS = ("certain", "guess", "deviation", "compared")
_PAPER = re.compile(r".*?\(arXiv [\d.]+\)|.*?\b20\d\d\b|[^.]*")
_HEADING = re.compile(r"\b(Certain|Guess(?:es)?|Deviations?|Compared|Unified|Official): ")


def parts(docstring: str) -> dict[str, str]:
    """The paper in the first sentence, and the text under each heading."""
    pieces = _HEADING.split(" ".join(docstring.split()))
    paper = _PAPER.match(" ".join(docstring.split("\n\n")[0].split()))
    found = {"paper": paper.group() if paper else ""}
    for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
        found |= {name: body.strip() for name in _PARTS if heading.lower().startswith(name)}
    return found


def fidelity(grid: dict[str, Any]) -> str:
    lines = Path(__file__).with_suffix(".md").read_text().splitlines()
    for name, cls in registry(grid["registry"]).items():
        about = parts(sys.modules[cls.__module__].__doc__ or "")
        presets = [in_markdown(one) for one, entry in grid["presets"].items() if name in entry]
        recipes = ", ".join(["unified", *presets])
        cells = [about.get(part, "").replace("|", "\\|") or "-" for part in ("paper", *_PARTS)]
        lines.append(f"| `{name}` | {cells[0]} | {recipes} | " + " | ".join(cells[1:]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    argparse.ArgumentParser(description="Print docs/fidelity.md.").parse_args()
    sys.stdout.write(fidelity(read_grid()))
