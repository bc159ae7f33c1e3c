"""Tables, figures and verdicts for the page, read from the report files."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pandas as pd

from harness.core.files import from_csv, one_line
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan
from harness.papers.claims import tally
from harness.reports.cells import deviation, unofficial
from harness.reports.palette import place_of

_AS_THEY_ARE = "".join(sign for sign in map(chr, range(32, 127)) if sign not in "%#&'")
_SCREEN_DPI = 120  # a little larger than in print: screens are further away


def tables(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    wanted = plan.artefacts.values()
    return [_table(plan, artefact, folder) for artefact in wanted if artefact.kind == "table"]


def methods(plan: Plan, tables: list[dict[str, Any]]) -> dict[str, str]:
    """Every method of any table, with its label, in the order of the grid's labels."""
    rows = [row for table in tables for part in table["parts"] for row in part["rows"]]
    found = {row["method"]: row["label"] for row in rows}
    return {m: found[m] for m in sorted(found, key=lambda m: place_of(m, plan.grid["labels"]))}


def _table(plan: Plan, artefact: Artefact, folder: Path) -> dict[str, Any]:
    """One part per data set and network; None for a missing number."""
    stem, ours = folder / "tables" / artefact.name, plan.grid["roles"]["ours"]
    table = _read(stem.with_suffix(".csv"))
    baselines = {slug: plan.label(slug) for slug in table.best_baseline.dropna().unique()}
    table["best_baseline"] = table.best_baseline.map(baselines)
    columns = {one_line(name): name for name in artefact.columns}  # as the CSV writes them
    table["column"] = table.column.map(lambda name: columns.get(name, name))
    table = table.astype(object).where(table.notna(), None)
    parts = []
    for _, part in table.groupby(["dataset", "network"], sort=False):
        rows = [
            {
                "method": method,
                "label": one.iloc[0].label,
                "ours": method.startswith(ours),
                "cells": one.set_index("column").to_dict("index"),
            }
            for method, one in part.groupby("method", sort=False)
        ]
        parts.append({"first": part.iloc[0].to_dict(), "rows": rows, "images": unofficial(part)})
    n = table.n.dropna().max()
    views = {"LaTeX": ".tex", "Markdown": ".md"}
    copies = {name: stem.with_suffix(suffix).read_text() for name, suffix in views.items()}
    about = {"artefact": artefact, "parts": parts, "n": n, "deviation": deviation(table)}
    return {**about, "copies": copies}


def _read(path: Path) -> pd.DataFrame:
    text = ("failed_checks", "best_baseline", "source", "mark", "runs", "label")
    table = from_csv(pd.read_csv(path, dtype=dict.fromkeys(text, "object")))
    table = table.astype({"n": "Int64"})  # minutes have no n, which would turn 200 into 200.0
    return table.assign(**{name: table[name].fillna("") for name in ("failed_checks", "mark")})


def figures(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    return [
        {"artefact": artefact, **_picture(folder / "figures" / f"{artefact.name}.svg")}
        for artefact in plan.artefacts.values()
        if artefact.kind != "table"
    ]


def _picture(path: Path) -> dict[str, Any]:
    """An SVG as a data URL, with its size, so that the layout does not move while the page opens.

    Text is a quarter shorter than base64. It stands between single quotes, which it has none of.
    """
    text = path.read_text(encoding="utf-8")
    box = ElementTree.fromstring(text).attrib["viewBox"]
    width, height = (round(float(points) * _SCREEN_DPI / 72) for points in box.split()[2:])
    source = f"data:image/svg+xml,{quote(text, safe=_AS_THEY_ARE)}"
    return {"width": width, "height": height, "source": source}


def verdicts(plan: Plan, folder: Path) -> dict[str, Any] | None:
    """The judged claims and the number of each verdict; None if no claim was judged."""
    path = folder / "claims.csv"
    if not path.exists():
        return None
    claims = from_csv(pd.read_csv(path, dtype=str, keep_default_na=False))
    rows = claims.to_dict("records")
    for row in rows:
        names = re.split(r"[\s,;]+", row["artefacts"])
        row["artefacts"] = [name for name in names if name in plan.artefacts]
        row["word"] = row["our_verdict"].partition(" (")[0]
        row.setdefault("kind", "claim")
    controls = claims.get("kind", pd.Series("claim", claims.index)) == "control"
    counts = {who: _counts(claims[~controls][f"{who}_verdict"]) for who in ("published", "our")}
    if controls.any():
        counts["control"] = _counts(claims[controls].our_verdict)
    return {"rows": rows, "counts": counts}


def _counts(verdicts: pd.Series) -> dict[str, int]:
    """Always the three main verdicts, even if zero; the others only if they occur."""
    found = tally(verdicts)
    partly = [word for word in found if word.startswith("holds where")]
    order = dict.fromkeys(("holds", *partly, "fails", "undecided", *found))
    return {word: found.get(word, 0) for word in order}
