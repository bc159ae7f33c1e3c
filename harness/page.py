"""The page of a scale: `python -m harness.page --scale smoke`. One file, no network, torch-free.

Everything is inside it: style, script, figures. Its content policy allows only its own script, so
text out of a config could not run even if a template forgot to escape it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from harness import paths
from harness.config import ROOT
from harness.errors import run_command
from harness.files import write_whole
from harness.page_artefacts import figures, tables, verdicts
from harness.page_runs import runs
from harness.plan import Plan
from harness.provenance import provenance
from harness.sparklines import HEIGHT, WIDTH

TEMPLATES = ROOT / "harness" / "templates"
_SYMBOLS = {
    "l_inf": "ℓ∞",
    "l_2": "ℓ₂",
    "l_1": "ℓ₁",
    "gamma_1": "γ₁",
    "gamma_2": "γ₂",
    "gamma": "γ",
    "lambda": "λ",
    "eps": "ε",
}
_WORDS = re.compile(rf"\b({'|'.join(_SYMBOLS)})\b")


def symbols(text: str) -> str:
    """Names of norms and hyper-parameters as readers know them."""
    return _WORDS.sub(lambda found: _SYMBOLS[found[0]], text)


def counted(number: int, what: str) -> str:
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
    """Templates that escape what they are given; style and script are the page's own files."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (TEMPLATES / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made.filters |= {"symbols": symbols, "counted": counted, "span": span, "duration": duration}
    made.globals |= {
        "style": (TEMPLATES / "page.css").read_text(),
        "script": script,
        "script_digest": f"sha256-{digest}",
        "chart_width": WIDTH,
        "chart_height": HEIGHT,
    }
    return made


def images(plan: Plan, trained: list[dict[str, Any]], results: Path) -> list[dict[str, Any]]:
    """Each set that was used: what it stands for, and where its images came from.

    The records know where test images came from. Training images are in the report of the fetch, if
    the workflow made one.
    """
    sources: dict[str, set[str]] = {name: set() for name in plan.data_sets}
    for about in trained:
        for name, source in about["sources"].items():
            sources[name.partition("/")[0]].add(source)
    stands_for: dict[str, list[str]] = {}
    for papers, ours in plan.scale["datasets"].items():
        stands_for.setdefault(ours, []).append(papers)
    return [
        {
            "name": name,
            "stands_for": stands_for.get(name, []),
            "test": sorted(found),
            "train": _training_images(paths.fetched(results, name), name),
        }
        for name, found in sources.items()
    ]


def _training_images(report: Path, name: str) -> str | None:
    if not report.exists():
        return None
    found = re.search(rf"^{re.escape(name)} train: (.*); sha256", report.read_text(), re.MULTILINE)
    return found[1] if found else None


def checks(trained: list[dict[str, Any]]) -> dict[str, Any]:
    """The failed ones in full, the others counted: every run's section lists its own."""
    every = [check for about in trained for check in about["checks"]]
    counts = Counter((check["name"], check["norm"] or "", check["ok"]) for check in every)
    kinds = sorted({(name, norm) for name, norm, _ in counts})
    return {
        "failed": [check for check in every if not check["ok"]],
        "total": len(every),
        "kinds": [(*kind, counts[*kind, True], counts[*kind, False]) for kind in kinds],
    }


def write_page(plan: Plan, results: Path, reports: Path) -> Path:
    folder, trained = reports / plan.name, runs(plan, results)
    html = (
        environment()
        .get_template("index.html.j2")
        .render(
            plan=plan,
            tables=tables(plan, folder),
            figures=figures(plan, folder),
            verdicts=verdicts(plan, folder),
            images=images(plan, trained, results),
            runs=trained,
            checks=checks(trained),
            made=provenance(),
        )
    )
    path = folder / "index.html"
    write_whole(path, html)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the page of a scale.")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--reports", type=Path, default=Path("reports"))
    options = parser.parse_args()
    path = write_page(Plan.read(options.scale, options.grid), options.results, options.reports)
    print(f"the page is at {path}")


if __name__ == "__main__":
    run_command(main)
