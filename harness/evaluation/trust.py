"""Can a number be believed? Checks that need records only; probing.py has those that need the model.

A PGD makes as many gradient calls as its column's name says, more steps are not weaker (beyond paired
noise), the undefended model falls, PGD is close to AutoAttack, Square breaks little that gradient
attacks missed, the checkpoint was not selected on test data. A model that gives the same answer to
every image keeps its 10 % under every attack and passes all of these: hence the check that it is
better than guessing. AutoAttack is never above one of its components: it is what survives all of them.

The checks of a model in an artefact are computed once, when the artefact is made, and stored beside it
(`write_checks`): claims, RobustBench's form and the page read them there. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.attacks.autoattack import STANDARD
from harness.core.errors import expected
from harness.core.files import read_json, write_json
from harness.core.statistics import mcnemar, wilson
from harness.evaluation.records import Record, Records
from harness.grid.artefacts import Artefact
from harness.grid.columns import Column
from harness.grid.plan import Plan

_SQUARE = STANDARD.index("square")
_SQUARE_SHARE = 0.002  # as in AutoAttack's own warning
_LARGEST_GAP = 15.0  # points between PGD20 and AA
_USUAL_STEPS = 20  # of the PGD that is compared with AutoAttack
_UNDEFENDED = 0.1
_NOISE = 0.05  # p-value below which "stronger attack, higher accuracy" is not chance


@dataclass(frozen=True)
class Check:
    """`columns`, `probes` or `norm` say which numbers it touches; none of them: all of the model's."""

    name: str
    ok: bool
    found: str
    norm: str | None = None
    columns: tuple[str, ...] | None = None
    probes: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Check:
        lists = {key: entry.get(key) for key in ("columns", "probes")}
        return cls(**{**entry, **{key: value and tuple(value) for key, value in lists.items()}})

    def touches(self, column: Column) -> bool:
        if self.columns is not None:
            return column.name in self.columns
        if self.probes is not None:
            # AutoAttack by components is not in doubt because one of them is: others may be stronger.
            return set(self.probes).issuperset(column.formula.probes)
        return self.norm is None or self.norm in column.norms


def record_checks(
    columns: Sequence[Column],
    records: Mapping[str, Record],
    undefended: bool,
    selection: str | None,
    labels: np.ndarray | None,
) -> list[Check]:
    """Checks of a model's records. `columns`: all that are one attack, or none (Columns.attacks)."""
    there = [column for column in columns if all(p in records for p in column.formula.probes)]
    named = {column: records[column.probes[0].id] for column in there if len(column.probes) == 1}
    first = {(column.formula, column.promised): column for column in reversed(there)}
    distinct = [column for column in there if column in first.values()]  # without second names
    single = {column: named[column] for column in distinct if column in named}
    checks = [*_gradient_calls(named), *_weaker(single), *_autoattack(distinct, records)]
    natural = [record for column, record in single.items() if column.attack == "none"]
    if natural and labels is not None:
        checks.append(_better_than_guessing(natural[0], labels))
    usual = [column for column in single if column.promised == _USUAL_STEPS]
    if undefended and usual:
        left = float(single[usual[0]].correct.mean())
        found = f"{100 * left:.1f} % left under {usual[0].name}"
        checks.append(Check("the undefended model falls", left <= _UNDEFENDED, found))
    if selection is not None:  # unknown for other people's models
        found = f"selection: {selection}"
        ok = selection != "paper-test"
        # It touches no column: such numbers carry a mark of their own.
        checks.append(Check("checkpoint not selected on test data", ok, found, columns=()))
    warned = {column: record.warnings for column, record in single.items() if record.warnings}
    if warned:
        texts = sorted({text for some in warned.values() for text in some})
        touched = tuple(column.probes[0].id for column in warned)
        checks.append(Check("AutoAttack had no warnings", False, "; ".join(texts), probes=touched))
    return checks


def _gradient_calls(single: Mapping[Column, Record]) -> list[Check]:
    """PGD100 must have made 100 of them. The records count what really happened."""
    return [
        Check(
            f"{column.name} takes {column.promised} steps",
            record.backward == column.promised,
            f"{record.backward} gradient calls",
            columns=(column.name,),
        )
        for column, record in single.items()
        if column.promised and (record.correct.any() or record.backward > 0)
    ]


def _weaker(single: Mapping[Column, Record]) -> list[Check]:
    """Of one ball: PGD of more steps against PGD of fewer, APGD against the longest PGD."""
    checks = []
    for ball in dict.fromkeys(column.balls for column in single if column.promised):
        rising = [column for column in single if column.promised and column.balls == ball]
        rising.sort(key=lambda column: column.promised or 0)
        rising += [c for c in single if c.attack == "apgd-ce" and c.balls == ball]
        for weak, strong in pairwise(rising):
            one, other = single[weak].correct, single[strong].correct
            p = mcnemar(one, other)
            ok = bool(other.mean() <= one.mean() or p >= _NOISE)
            found = f"{100 * one.mean():.2f} and {100 * other.mean():.2f} %, p = {p:.3g}"
            touched = (weak.probes[0].id, strong.probes[0].id)
            checks.append(Check(f"{strong.name} no weaker than {weak.name}", ok, found, probes=touched))
    return checks


def _autoattack(columns: Sequence[Column], records: Mapping[str, Record]) -> list[Check]:
    checks = []
    parts = {(c.attack, c.balls): records[c.probes[0].id] for c in columns if c.attack in STANDARD}
    for ball in dict.fromkeys(balls for _, balls in parts):
        if all((name, ball) in parts for name in STANDARD):
            *gradient, square = (parts[name, ball].correct for name in STANDARD)
            checks.append(_masking(np.logical_and.reduce(gradient) & ~square))
    for column in columns:
        if column.attack != "aa":
            continue
        own = [records[probe.id] for probe in column.probes]
        if len(own) == 1:  # a cascade: Square had what the others left
            checks.append(_masking(own[0].broken_by == _SQUARE))
        left = np.logical_and.reduce([record.correct for record in own])
        usual = [c for c in columns if c.promised == _USUAL_STEPS and c.balls == column.balls]
        for pgd in usual[:1]:
            (probe,) = pgd.probes
            gap = 100 * float(records[probe.id].correct.mean() - left.mean())
            found = f"{pgd.name} minus {column.name} is {gap:.1f} points"
            ok = gap <= _LARGEST_GAP
            checks.append(Check("PGD close to AutoAttack", ok, found, probes=(probe.id,)))
    return checks


def _better_than_guessing(natural: Record, labels: np.ndarray) -> Check:
    """Against the same answers, as often each, given without a look at the images."""
    n = len(labels)
    classes = int(max(labels.max(), natural.predicted.max())) + 1
    said, true = (np.bincount(x, minlength=classes) / n for x in (natural.predicted, labels))
    guessed, right = float(said @ true), int(natural.correct.sum())
    found = f"{100 * right / n:.1f} % right, {100 * guessed:.1f} % if it had guessed as it answers"
    return Check("better than guessing", wilson(right, n)[0] > guessed, found)


def _masking(missed: np.ndarray) -> Check:
    """Square uses no gradients: what it alone breaks, the others may have been kept from seeing."""
    ok = missed.sum() <= max(1, _SQUARE_SHARE * len(missed))
    found = f"Square broke {missed.sum()} images that gradient attacks missed"
    return Check("no hint of masked gradients from Square", bool(ok), found)


def model_checks(plan: Plan, artefact: Artefact, run: str, read: Records) -> list[Check]:
    """All checks of a model in an artefact: the model's own, and those of its records."""
    records, about = read
    (dataset,) = {plan.dataset(cell.dataset) for cell in artefact.cells if run in cell.runs}
    trained = plan.run(run)
    found = record_checks(
        artefact.attacks[dataset, trained.network],
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
    write_json(checks_path(reports, plan, artefact.name), content)
    return found


def read_checks(plan: Plan, artefact: str, reports: Path) -> dict[str, dict[str, Any]]:
    """What `write_checks` stored: run -> checks, sources of the images, seconds."""
    path, what = checks_path(reports, plan, artefact), f"record of the checks of {artefact}"
    make = f"run `snakemake --cores 2 {artefact} --config scale={plan.name}`"
    try:
        content = read_json(path, what, f"delete it and {make}")
    except FileNotFoundError:
        raise expected(f"a {what} in {path}", "none", make) from None
    return {
        run: {**about, "checks": [Check.from_json(entry) for entry in about["checks"]]}
        for run, about in content.items()
    }
