"""BibTeX of a method's paper, made from config/papers.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.grid.plan import Plan

_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "#$%&_{}"})


def paper_of(plan: Plan, slug: str, papers: Mapping[str, Any]) -> str | None:
    """The key of the paper behind a row; None if it has none."""
    base = slug.partition("@")[0]
    method = plan.grid["methods"].get(base, {}).get("method")
    key = papers["rows"].get(base, papers["methods"].get(method))
    return key if key and "year" in papers["papers"][key] else None


def bibtex(key: str, paper: Mapping[str, Any]) -> str:
    """An entry; what is under review or on arXiv only is no proceedings."""
    venue = re.sub(r",? ?(?:[A-Z][a-z]{2} )?\d{4}$", "", paper["venue"])
    online = venue in ("", "arXiv")
    fields = {
        "title": f"{{{_text(paper['name'])}}}",
        "author": _text(paper["authors"].replace(", ", " and ")),
        "booktitle": "" if online else _text(venue),
        "howpublished": "arXiv" if venue == "arXiv" else "",
        "year": str(paper["year"]),
        "url": paper["link"],
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{'misc' if online else 'inproceedings'}{{{key},", *lines, "}"])


def _text(text: str) -> str:
    return text.translate(_SIGNS)
