"""Every model with an AutoAttack number on one sortable page: ours, other people's, published ones.

`generalist-bench leaderboard --scale lite`, or `snakemake leaderboard`. Ours come from the tables of
the scale, other people's from the reports in results/external. The papers and RobustBench print no
number of images: their intervals are those of the official test set, and the page says so. BibTeX is
made from config/papers.yaml. Torch-free.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.core.config import read_papers
from harness.core.files import from_csv, read_json, write_whole
from harness.core.process import provenance
from harness.core.statistics import wilson
from harness.grid.artefacts import Cell
from harness.grid.plan import Plan, reported
from harness.grid.robustbench import Entry, entries
from harness.papers.published import KEYS, PUBLISHED
from harness.reports.bibtex import bibtex, paper_of
from harness.reports.page.render import environment

OURS, OTHERS, PAPERS, ROBUSTBENCH = "ours", "third party", "printed in a paper", "RobustBench"
TEST_IMAGES = {"mnist": 10000, "svhn": 26032, "imagenet": 5000}  # of the official sets; others 10,000
_NORMS = {"Linf": "l_inf", "L2": "l_2", "linf": "l_inf", "l2": "l_2", "l1": "l_1"}


def rows(plan: Plan, results: Path, reports: Path) -> list[dict[str, Any]]:
    """By data set and threat, the most robust first."""
    papers = read_papers()
    found = [*_measured(plan, reports, papers), *_foreign(results), *_leaderboard(papers)]
    return sorted(found, key=lambda row: (row["dataset"], row["threat"], -row["robust"]["value"]))


def _measured(plan: Plan, reports: Path, papers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Our models, and beside each what the papers print for its row."""
    tables: dict[str, pd.DataFrame] = {}
    for some in entries(plan.artefacts).values():
        shown = printed = False
        for entry in some:
            name = entry.artefact.name
            if name not in tables:
                tables[name] = _table(reports / plan.name / "tables" / f"{name}.csv")
            pair = [_cell(tables[name], cell) for cell in (entry.natural, entry.robust)]
            if any(cell is None for cell in pair):
                continue
            natural, robust = pair
            shared = _shared(plan, entry, papers)
            if not shown:
                shown = True
                marks = [mark for cell in (natural, robust) for mark in _marks(cell)]
                own = {"natural": _number(natural), "robust": _number(robust), "kind": OURS}
                yield {**shared, **own, "marks": list(dict.fromkeys(marks))}
            if not printed and robust["published"] != "" and natural["published"] != "":
                printed = True
                sizes = TEST_IMAGES.get(entry.robust.dataset, 10000)
                both = [_printed(float(cell["published"]), sizes) for cell in (natural, robust)]
                about = {"dataset": entry.robust.dataset, "network": entry.robust.network}
                own = {"natural": both[0], "robust": both[1], "kind": PAPERS, "marks": []}
                yield {**shared, **about, **own}


def _shared(plan: Plan, entry: Entry, papers: Mapping[str, Any]) -> dict[str, Any]:
    cell = entry.robust
    return {
        "model": plan.label(cell.method),
        "attack": "AutoAttack",
        "dataset": plan.dataset(cell.dataset),
        "network": plan.network(cell.network),
        "threat": f"{_NORMS[cell.meaning.balls[0].norm]} {entry.eps}",
        "paper": paper_of(plan, cell.method, papers),
    }


def _table(path: Path) -> pd.DataFrame:
    """A table's cells; none if it has not been made. The workflow makes all of them first."""
    if not path.exists():
        return pd.DataFrame(columns=KEYS)
    return from_csv(pd.read_csv(path, keep_default_na=False))


def _cell(table: pd.DataFrame, cell: Cell) -> Any:
    here = [table[key].eq(getattr(cell, key)) for key in KEYS]
    own = table[np.logical_and.reduce(here)]
    return None if own.empty else own.iloc[0]


def _number(cell: pd.Series) -> dict[str, Any]:
    low, high = float(cell.low), float(cell.high)
    return {"value": float(cell.ours), "low": low, "high": high, "n": int(float(cell.n))}


def _printed(value: float, images: int) -> dict[str, Any]:
    low, high = wilson(value / 100 * images, images)
    ends = {"low": round(100 * low, 2), "high": round(100 * high, 2)}
    return {"value": value, **ends, "n": images, "assumed": True}


def _marks(cell: pd.Series) -> Iterator[str]:
    if cell.selection == "paper-test":
        yield "† epoch selected on test data"
    if cell.failed_checks:
        yield f"‡ failed: {cell.failed_checks}"


def _foreign(results: Path) -> Iterator[dict[str, Any]]:
    """Other people's models, from the reports that `generalist-bench evaluate --model` wrote."""
    for path in sorted(results.glob("external/*/report.json")):
        report = read_json(path, "report of an evaluation", "delete its folder and evaluate again")
        about, table = report["about"], {row["column"]: row for row in report["table"]}
        natural = table["NAT"]
        robust = [row for name, row in table.items() if name.startswith("AA")]
        for row in robust:
            doubts = dict.fromkeys(d for one in (natural, row) for d in one["doubts"].split("; ") if d)
            yield {
                "model": about["model"],
                "attack": "AutoAttack" if row["column"] == "AA" else row["column"],
                "dataset": about["images"].rpartition(" of ")[2],
                "network": "",
                "threat": f"{_NORMS.get(row['norm'], row['norm'])} {row['eps']}",
                "paper": None,
                "kind": OTHERS,
                "natural": _theirs(natural),
                "robust": _theirs(row),
                "marks": [f"‡ failed: {doubt}" for doubt in doubts],
            }


def _theirs(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": row["percent"], **{key: row[key] for key in ("low", "high", "n")}}


def _leaderboard(papers: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for row in pd.read_csv(PUBLISHED / "robustbench.csv").itertuples():
        sizes, name = TEST_IMAGES.get(str(row.dataset), 10000), str(row.entry)
        files = {key: about["seen"] for key, about in papers["papers"].items()}
        yield {
            "model": name,
            "attack": "AutoAttack",
            "dataset": row.dataset,
            "network": row.architecture,
            "threat": f"{_NORMS[str(row.threat)]} {row.eps}",
            "paper": next((key for key, seen in files.items() if f"/{name}.json" in seen), None),
            "kind": ROBUSTBENCH,
            "natural": _printed(float(str(row.clean_acc)), sizes),
            "robust": _printed(float(str(row.autoattack_acc)), sizes),
            "marks": [],
        }


def write_leaderboard(plan: Plan, results: Path, reports: Path) -> Path:
    found, papers = rows(plan, results, reports), read_papers()["papers"]
    cited = {row["paper"]: bibtex(row["paper"], papers[row["paper"]]) for row in found if row["paper"]}
    page = environment().get_template("leaderboard.html.j2")
    html = page.render(plan=plan, rows=found, cited=dict(sorted(cited.items())), made=provenance())
    path = reports / plan.name / "leaderboard.html"
    write_whole(path, html)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the leaderboard of a scale.")
    plan, options = reported(parser)
    print(f"the leaderboard is at {write_leaderboard(plan, options.results, options.reports)}")
