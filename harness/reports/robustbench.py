"""Our models in RobustBench's form: `generalist-bench robustbench --scale smoke`. Torch-free.

One JSON file per model and threat, with the fields of RobustBench's model_info: `reported` is the
paper's number, `autoattack_acc` ours, `unreliable` whether a trust check of the model failed.
Accuracies are texts, as there. Each file says in its footnote at which scale it was made: only what was
measured on the real data with AutoAttack's full budget would be a submission.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.config import read_papers
from harness.core.errors import expected
from harness.core.files import write_whole
from harness.evaluation.records import Record, read_evaluation, value
from harness.evaluation.trust import Check, read_checks
from harness.grid.build import look_up
from harness.grid.plan import Plan, reported
from harness.grid.robustbench import Entry, entries
from harness.grid.specs import standard
from harness.models import NETWORKS
from harness.papers.published import KEYS, published
from harness.reports.cells import budget


def model_info(
    plan: Plan,
    entry: Entry,
    records: Mapping[str, Record],
    checks: Sequence[Check],
    reported: float | None,
    papers: Mapping[str, Any],
) -> dict[str, Any]:
    cell = entry.robust
    natural, robust = value(entry.natural.formula, records), value(cell.formula, records)
    shown = (cell.meaning, entry.natural.meaning)
    failed = [c.name for c in checks if not c.ok and any(c.touches(column) for column in shown)]
    network = plan.network(cell.network)
    return {
        **_paper(plan, cell.method, papers),
        "additional_data": False,
        "number_forward_passes": 1,
        "dataset": plan.dataset(cell.dataset),
        "architecture": papers["architectures"].get(network, network),
        "eps": entry.eps,
        "clean_acc": f"{100 * natural.mean():.2f}",
        "reported": "" if reported is None else f"{reported:.2f}",
        "autoattack_acc": f"{100 * robust.mean():.2f}",
        "footnote": _footnote(plan, entry, len(robust), failed),
        "unreliable": bool(failed),
    }


def _paper(plan: Plan, slug: str, papers: Mapping[str, Any]) -> dict[str, str]:
    """Link, name, authors and venue; a method that papers.yaml does not know goes by its label."""
    base = slug.partition("@")[0]
    method = plan.grid["methods"].get(base, {}).get("method")
    key = papers["rows"].get(base, papers["methods"].get(method))
    paper = papers["papers"].get(key, {"name": plan.label(slug)})
    return {field: paper.get(field, "") for field in ("link", "name", "authors", "venue")}


def _footnote(plan: Plan, entry: Entry, n: int, failed: list[str]) -> str:
    cell = entry.robust
    what = f"{plan.label(cell.method)} for {cell.dataset} with {cell.network}, run {entry.run}"
    notes = [plan.scale["notice"], what, f"{n} test images"]
    if budget(plan):
        notes.append(f"AutoAttack with a shortened budget ({budget(plan)})")
    if plan.run(entry.run).selection.use == "paper-test":
        notes.append("checkpoint selected on test data")
    notes += [f"failed trust check: {name}" for name in dict.fromkeys(failed)]
    return "; ".join(notes)


def _reported(candidates: list[Entry], tables: Mapping[str, dict]) -> tuple[Entry, float | None]:
    """The table whose paper prints the number; the first one if none does."""
    for entry in candidates:
        number = tables[entry.artefact.name].get(tuple(getattr(entry.robust, key) for key in KEYS))
        if number is not None:
            return entry, number
    return candidates[0], None


def read(plan: Plan) -> dict[str, Any]:
    return checked(read_papers(), plan)


def checked(papers: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """config/papers.yaml, whose names must be those of the grid, its methods' classes and networks."""
    where = "papers.yaml's"
    for slug in papers["rows"]:
        look_up("method", slug, {**standard()["methods"], **plan.grid["methods"]}, f"{where} rows")
    for name in papers["methods"]:
        look_up("method class", name, plan.classes, f"{where} methods")
    for name in papers["architectures"]:
        look_up("network", name, NETWORKS, f"{where} architectures")
    for section in ("rows", "methods"):
        for name in papers[section].values():
            look_up("paper", name, papers["papers"], f"{where} {section}")
    cited = {*papers["rows"].values(), *papers["methods"].values()}
    for name in papers["papers"].keys() - cited:
        raise expected(f"a row or a method of {where} paper {name}", "none", "name one, or delete it")
    return papers


def write_entries(plan: Plan, results: Path, reports: Path) -> list[Path]:
    papers, found, written = read(plan), entries(plan.artefacts), []
    artefacts = {e.artefact.name: e.artefact for some in found.values() for e in some}
    tables = {
        name: published(artefact, plan).set_index(KEYS).published.to_dict()
        for name, artefact in artefacts.items()
    }
    for name, candidates in found.items():
        entry, reported = _reported(candidates, tables)
        records, _ = read_evaluation(results, plan.evaluations[entry.run])
        checks = read_checks(plan, entry.artefact.name, reports)[entry.run]["checks"]
        info = model_info(plan, entry, records, checks, reported, papers)
        path = reports / plan.name / "robustbench" / f"{name}.json"
        write_whole(path, json.dumps(info, indent=2, ensure_ascii=False) + "\n")
        written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description="Write every model in RobustBench's form.")
    plan, options = reported(parser)
    written = write_entries(plan, options.results, options.reports)
    print(f"{len(written)} files are at {options.reports / plan.name / 'robustbench'}")
