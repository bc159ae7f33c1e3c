"""From records to numbers: a column image by image, and the checks of a model in an artefact.

The checks are computed once, when an artefact is made, and stored beside it (`write_checks`): claims,
RobustBench's form and the page read them there. Torch-free.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.core import paths
from harness.core.errors import expected
from harness.core.files import write_whole
from harness.data import frames
from harness.data.corruptions.sequences import flips
from harness.data.sources import recipe
from harness.evaluation.records import Record, read_records
from harness.evaluation.trust import Check, record_checks
from harness.grid.artefacts import Artefact
from harness.grid.columns import Formula
from harness.grid.plan import Plan

Records = tuple[dict[str, Record], dict[str, Any]]  # of one model, and what is known about it


def value(formula: Formula, records: Mapping[str, Record]) -> np.ndarray:
    """A formula per image: 0 or 1, or in between for the mean of two columns."""
    if formula.op == "probe":
        return records[formula.parts[0]].correct
    if formula.sequence is not None:
        record, length = records[formula.parts[0]], frames(formula.sequence)
        if formula.op == "frames":
            return record.correct.reshape(-1, length).mean(axis=1)
        return flips(record.predicted.reshape(-1, length), formula.sequence).mean(axis=1)
    parts = [value(part, records) for part in formula.parts]
    return np.logical_and.reduce(parts) if formula.op == "all" else np.mean(parts, axis=0)


def read_artefact(artefact: Artefact, plan: Plan, results: Path) -> dict[str, Records]:
    files = {run: paths.records(results, plan.evaluations[run].id) for run in artefact.runs}
    read = {run: read_records(path, run) for run, path in files.items()}
    images: dict[str, str] = {}  # whose -> the checksum behind the runs so far
    for run, (_, about) in read.items():
        for whose, found in _checksums(plan, run, about).items():
            if images.setdefault(whose, found) != found:
                raise expected(
                    f"the same {whose} behind every number of {artefact.name}",
                    f"others behind {files[run]}",
                    "delete that file (and its model, if those images trained it) to compute it again",
                )
    return read


def _checksums(plan: Plan, run: str, about: Mapping[str, Any]) -> dict[str, str]:
    """Of all images behind a model's records, as far as they are known. Of a generated set it is how it
    was made: on another processor a few pixels in a million round the other way, by one grey level."""
    tested = {
        f"test images of {name}": recipe(about["sources"][name]) or found
        for name, found in about.get("sha256", {}).items()
    }
    learnt = (about.get("trained") or {}).get("trained_on")
    name = f"training images of {plan.run(run).dataset}"
    known = {**tested, name: learnt["sha256"]} if learnt else tested
    return {whose: found for whose, found in known.items() if found}


def model_checks(plan: Plan, artefact: Artefact, run: str, read: Records) -> list[Check]:
    """All checks of a model in an artefact: the model's own, and those of its records."""
    records, about = read
    (dataset,) = {plan.dataset(cell.dataset) for cell in artefact.cells if run in cell.runs}
    trained = plan.run(run)
    found = record_checks(
        artefact.attacks[dataset],
        records,
        undefended=trained.method.slug == plan.grid["roles"]["undefended"],
        selection=trained.selection.use,
        labels=about["labels"].get(dataset),
    )
    return [Check.from_json(entry) for entry in about["checks"]] + found


def checks_path(reports: Path, plan: Plan, artefact: str) -> Path:
    return reports / plan.name / plan.artefact(artefact).folder / f"{artefact}.json"


def write_checks(
    plan: Plan, artefact: Artefact, read: Mapping[str, Records], reports: Path
) -> dict[str, list[Check]]:
    """Compute and store the checks of every model in an artefact."""
    shown = {run for cell in artefact.cells for run in cell.runs}
    found = {run: model_checks(plan, artefact, run, read[run]) for run in read if run in shown}
    content = {
        run: {
            "checks": [check.as_json() for check in checks],
            "sources": read[run][1]["sources"],
            "seconds": read[run][1]["seconds"],
        }
        for run, checks in found.items()
    }
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_whole(checks_path(reports, plan, artefact.name), text)
    return found


def read_checks(plan: Plan, artefact: str, reports: Path) -> dict[str, dict[str, Any]]:
    """What `write_checks` stored: run -> checks, sources of the images, seconds."""
    path = checks_path(reports, plan, artefact)
    try:
        content = json.loads(path.read_text())
        return {
            run: {**about, "checks": [Check.from_json(entry) for entry in about["checks"]]}
            for run, about in content.items()
        }
    except FileNotFoundError:
        found = "none"
    except (ValueError, TypeError, KeyError, AttributeError):
        found = "something else"
    command = f"snakemake --cores 2 {artefact} --config scale={plan.name}"
    raise expected(f"the checks of {artefact} in {path}", found, f"run `{command}`")
