"""docs/fidelity.md, from the methods' own docstrings: `python -m harness.fidelity > docs/fidelity.md`.

A method's module docstring names its paper in the first sentence and says, in paragraphs or sentences
that begin so, what is `Certain:`, what is a `Guess:` and what a `Deviation:`.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from harness.build import registry
from harness.config import read_grid
from harness.errors import run_command

_PARTS = {"certain": r"Certain", "guess": r"Guess(?:es)?", "deviation": r"Deviations?"}
_PAPER = re.compile(r".*?\(arXiv [\d.]+\)|.*?\b20\d\d\b|[^.]*")
_HEADING = re.compile(r"\b(Certain|Guess(?:es)?|Deviations?|Unified|Official): ")


def parts(docstring: str) -> dict[str, str]:
    """The first sentence, and what follows each of the headings up to the next one."""
    text = " ".join(docstring.split())
    pieces = _HEADING.split(text)
    paper = _PAPER.match(" ".join(docstring.split("\n\n")[0].split()))
    found = {"paper": paper.group() if paper else ""}
    for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
        for name, pattern in _PARTS.items():
            if re.fullmatch(pattern, heading):
                found[name] = body.strip()
    return found


def fidelity(grid: dict[str, Any]) -> str:
    lines = [
        "# Fidelity of the methods",
        "",
        "Made from the methods' docstrings (`python -m harness.fidelity > docs/fidelity.md`). Every",
        "method trains by the papers' `unified` recipe; another one that is named is in",
        "`config/presets.yaml` and is asked for as `slug@official` or `slug@released`.",
        "",
        "`Certain` rests on the project's fact cards, which were read off each method's paper or code;",
        "we did not read that code again. arXiv numbers were written from memory.",
        "",
        "| method | paper | recipes | certain | guess | known deviations |",
        "|---|---|---|---|---|---|",
    ]
    for name, cls in registry(grid["registry"]).items():
        module = inspect.getmodule(cls)
        about = parts((module.__doc__ or "") if module else "")
        presets = [preset for preset, entry in grid["presets"].items() if name in entry]
        recipes = ", ".join(["unified", *presets])
        cells = [about.get(part, "").replace("|", "\\|") or "-" for part in ("paper", *_PARTS)]
        lines.append(f"| `{name}` | {cells[0]} | {recipes} | " + " | ".join(cells[1:]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    sys.stdout.write(fidelity(read_grid()))


if __name__ == "__main__":
    run_command(main)
