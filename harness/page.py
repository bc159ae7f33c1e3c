"""The page of a scale: `python -m harness.page --scale smoke`. One file, no network, torch-free."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from harness import paths
from harness.cells import trust_checks
from harness.config import ROOT
from harness.errors import run_command
from harness.files import write_whole
from harness.plan import Plan
from harness.provenance import provenance
from harness.records import read_records

TEMPLATES = ROOT / "harness" / "templates"


def tables(plan: Plan, reports: Path) -> list[dict[str, Any]]:
    shown = []
    for artefact in plan.artefacts.values():
        if artefact.kind != "table":
            continue
        table = pd.read_csv(
            reports / plan.name / "tables" / f"{artefact.name}.csv",
            dtype={"failed_checks": "object"},
        )
        table["failed_checks"] = table.failed_checks.fillna("")
        table = table.astype(object).where(table.notna(), None)
        parts = []
        for _, part in table.groupby(["dataset", "network"], sort=False):
            rows = [
                {"label": one.iloc[0].label, "cells": one.set_index("column").to_dict("index")}
                for _, one in part.groupby("method", sort=False)
            ]
            first = part.iloc[0]
            generated = {source for source in part.source if "generated" in str(source)}
            parts.append({"first": first.to_dict(), "rows": rows, "generated": sorted(generated)})
        shown.append({"artefact": artefact, "parts": parts, "n": int(table.n.max())})
    return shown


def checks(plan: Plan, results: Path) -> list[dict[str, Any]]:
    """Every model's trust checks, once each: what was looked at, what was found."""
    shown = []
    for artefact in plan.artefacts.values():
        for run in artefact.runs if artefact.columns else ():
            read = read_records(paths.records(results, plan.evaluations[run].id))
            for check in trust_checks(plan, artefact, run, read):
                shown.append({"run": run, "norm": check.norm or "", **check.as_json()})
    unique = {(row["run"], row["name"], row["norm"], row["found"]): row for row in shown}
    return sorted(unique.values(), key=lambda row: (row["ok"], row["run"], row["name"]))


def runs(plan: Plan, results: Path) -> list[dict[str, Any]]:
    described = [json.loads(paths.description(results, run).read_text()) for run in plan.runs]
    return sorted(described, key=lambda about: about["id"])


def write_page(plan: Plan, results: Path, reports: Path) -> Path:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    trained = runs(plan, results)
    html = environment.get_template("index.html.j2").render(
        plan=plan,
        tables=tables(plan, reports),
        runs=trained,
        checks=checks(plan, results),
        minutes=sum(about["seconds"] for about in trained) / 60,
        made=provenance(),
    )
    path = reports / plan.name / "index.html"
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
