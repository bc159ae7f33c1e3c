"""The cells of a table, from records: numbers, intervals, paired tests, failed checks. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.core import paths
from harness.core.config import ROOT
from harness.core.errors import expected
from harness.core.statistics import interval, paired
from harness.data import frames
from harness.data.corruptions.sequences import flips
from harness.data.sources import GENERATED, PART, recipe
from harness.evaluation.records import Record, read_records
from harness.evaluation.trust import Check, record_checks
from harness.grid.artefacts import Artefact, Cell
from harness.grid.columns import COMPONENTWISE, Formula
from harness.grid.plan import Plan

PUBLISHED = ROOT / "reports" / "published" / "values.csv"
KEYS = ["dataset", "network", "method", "column"]
Records = tuple[dict[str, Record], dict[str, Any]]  # of one model, and what is known about it


def published(artefact: Artefact, plan: Plan) -> pd.DataFrame:
    """The papers' numbers for an artefact, by our keys."""
    return printed(artefact.published, artefact.published_rows, artefact.columns, plan)


def printed(
    sources: str | Iterable[str], rows: Mapping[str, str], columns: Iterable[str], plan: Plan
) -> pd.DataFrame:
    """Some columns of a printed table, or of several, by our keys; columns may have other names there.

    `rows` names the printed row beside one of ours; several of ours may have the same one. A row that
    is not in it has the printed row of its own name. Of several tables the first with a number counts.
    """
    everything, found = pd.read_csv(PUBLISHED), []
    for source in [sources] if isinstance(sources, str) else sources:
        document, _, name = source.partition("_")
        own = everything[(everything.document == document) & (everything.artefact == name)]
        found.append(own[~own.method.isin(rows)])
        found += [own[own.method == theirs].assign(method=ours) for ours, theirs in rows.items()]
    values = pd.concat(found)
    parts = []
    for column in columns:
        entry = plan.columns.column(column)
        own = values[values.metric == entry.get("published", column)].assign(column=column)
        suffix = f"-{entry['corrupted']}" if entry.get("published") and "corrupted" in entry else ""
        own = own[own.dataset.str.endswith(suffix)] if suffix else own
        parts.append(own.assign(dataset=own.dataset.str.removesuffix(suffix)))
    names = {"arch": "network", "value": "published", "std": "published_std"}
    table = pd.concat(parts).rename(columns=names)[[*KEYS, "published", "published_std"]]
    return table.drop_duplicates(KEYS)


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


def cells(artefact: Artefact, read: Mapping[str, Records], plan: Plan) -> pd.DataFrame:
    """One row per cell. With several seeds: their mean, their deviation, an interval over both."""
    rows, images = [], {}
    checks = {run: trust_checks(plan, artefact, run, read[run]) for run in artefact.runs}
    for cell in artefact.cells:
        if cell.formula.op == "measured":
            each, low, high, n = _minutes(cell, read), None, None, None
        else:
            values = np.stack([value(cell.formula, read[run][0]) for run in cell.runs])
            each, n = [100 * float(flags.mean()) for flags in values], values.shape[1]
            low, high = (round(100 * end, 2) for end in interval(values))
            images[cell.dataset, cell.network, cell.column, cell.method] = values
        failed = [
            check.name
            for run in cell.runs
            for check in checks[run]
            if not check.ok and n and check.touches(cell.column, norms(plan, cell, artefact))
        ]
        calls = [read[run][0][probe].backward for run in cell.runs for probe in cell.formula.probes]
        rows.append(
            {
                "dataset": cell.dataset,
                "network": cell.network,
                "method": cell.method,
                "column": cell.column,
                "label": plan.label(cell.method),
                "ours": round(float(np.mean(each)), 2),
                "low": low,
                "high": high,
                "n": n,
                "seeds": len(cell.runs),
                "std": round(float(np.std(each, ddof=1)), 2) if len(each) > 1 else None,
                "gradient_calls": max(calls, default=0),
                "measured_on": plan.dataset(cell.dataset),
                "source": "; ".join(sources(cell, read[cell.runs[0]][1])),
                "measured_with": plan.network(cell.network),
                "protocol": artefact.protocol,
                "selection": plan.run(cell.runs[0]).selection.use,
                "failed_checks": "; ".join(dict.fromkeys(failed)),
                "runs": " ".join(cell.runs),
            }
        )
    table = pd.DataFrame(rows).merge(published(artefact, plan), on=KEYS, how="left")
    table["difference"] = (table.ours - table.published).round(2)
    table["mark"] = table.groupby(["dataset", "network", "column"], group_keys=False)[
        ["ours", "column"]
    ].apply(lambda part: _marks(part.ours, plan.columns.lower_is_better(part.column.iloc[0])))
    return _against_best_baseline(table, images, plan)


def _minutes(cell: Cell, read: Mapping[str, Records]) -> list[float]:
    return [read[run][1]["trained"]["seconds"] / 60 for run in cell.runs]


def sources(cell: Cell, about: Mapping[str, Any]) -> list[str]:
    """Where the images behind a cell came from, each said once. Training images, if a part."""
    sets = {about["probes"][probe]["dataset"] for probe in cell.formula.probes}
    learnt = ((about.get("trained") or {}).get("trained_on") or {}).get("source", "")
    trained = [f"trained on {learnt}"] if PART in learnt else []
    return [*sorted({about["sources"][name] for name in sets}), *trained]


def deviation(table: pd.DataFrame) -> str:
    """What stands behind ±; nothing where every number is of one training."""
    counts = table.groupby("dataset", sort=False).seeds.max()
    if counts.max() == 1:
        return ""
    if counts.nunique() == 1:
        return f"mean ± deviation over {counts.max()} seeds"
    each = ", ".join(f"{count} of {name}" for name, count in counts.items())
    return f"mean ± deviation over seeds ({each})"


def unofficial(table: pd.DataFrame) -> list[str]:
    """The sources that a reader must be told of: images that we made, or a part of an official set."""
    found = {text for text in table.source.dropna() if GENERATED in text or PART in text}
    return sorted(one for one in found if not any(one in other for other in found - {one}))


def norms(plan: Plan, cell: Cell, artefact: Artefact) -> set[str]:
    """The norms that a column's attacks live in."""
    entry = plan.columns.column(cell.column, artefact.protocol)
    parts = [
        plan.columns.column(part, artefact.protocol)
        for part in entry.get("mean", entry.get("all", []))
    ]
    threats = {part["threat"] for part in [entry, *parts] if "threat" in part}
    table = plan.grid["datasets"][plan.dataset(cell.dataset)]["threats"]
    return {table[threat]["norm"] for threat in threats}


@cache
def _attack_columns(plan: Plan, dataset: str, protocol: str) -> dict[str, str]:
    """Column -> probe, for columns that are one attack."""
    return {
        name: plan.columns.probe(name, dataset, protocol).id
        for name in plan.grid["columns"]
        if "attack" in plan.columns.column(name) and plan.columns.affords(name, dataset, protocol)
    }


def trust_checks(plan: Plan, artefact: Artefact, run: str, read: Records) -> list[Check]:
    """Everything that is known for or against a model's numbers in this artefact."""
    records, about = read
    (dataset,) = {plan.dataset(cell.dataset) for cell in artefact.cells if run in cell.runs}
    other = (
        artefact.autoattack == COMPONENTWISE
    )  # then a cascade's record is not what is shown here
    columns = {
        name: records[probe]
        for name, probe in _attack_columns(plan, dataset, artefact.protocol).items()
        if probe in records and not (other and plan.columns.column(name)["attack"] == "aa")
    }
    flags = {name: record.correct for name, record in columns.items()}
    for cell in artefact.cells:
        column = plan.columns.column(cell.column, artefact.protocol)
        if column.get("attack") == "aa" and run in cell.runs:
            flags[cell.column] = value(cell.formula, records)
    undefended = plan.run(run).method.slug == plan.grid["roles"]["undefended"]
    selection, labels = plan.run(run).selection.use, about["labels"].get(dataset)
    checks = record_checks(columns, flags, undefended, selection, labels)
    return [Check.from_json(entry) for entry in about["checks"]] + checks


def _against_best_baseline(
    table: pd.DataFrame, images: Mapping[tuple, np.ndarray], plan: Plan
) -> pd.DataFrame:
    """Each method against the best method that is not ours, on the same images: exact McNemar, or
    Student's t where there are several seeds."""
    found: list[tuple[str | None, float | None]] = []
    for row in table.itertuples():
        rivals = table[(table[KEYS[:2]] == [row.dataset, row.network]).all(axis=1)]
        rivals = rivals[rivals.column == row.column]
        ours = rivals.method.str.startswith(plan.grid["roles"]["ours"])
        rivals = rivals[~ours & (rivals.method != row.method)]
        mine = images.get((row.dataset, row.network, row.column, row.method), np.array([0.5]))
        if rivals.empty or not np.isin(mine, (0, 1)).all():  # minutes, or a mean of columns
            found.append((None, None))
            continue
        worst_first = rivals.sort_values(
            "ours", ascending=not plan.columns.lower_is_better(row.column)
        )
        best = str(worst_first.iloc[-1].method)
        test = paired(mine, images[row.dataset, row.network, row.column, best])
        found.append((best, float(f"{test.p:.3g}")))
    baselines, p_values = zip(*found, strict=True)
    return table.assign(best_baseline=baselines, p_against_it=p_values)


def _marks(ours: pd.Series, ascending: bool) -> pd.Series:
    """`best` and `second` by rank; equal numbers share a mark."""
    rank = ours.rank(method="min", ascending=ascending)
    return rank.map({1.0: "best", 2.0: "second"}).fillna("")
