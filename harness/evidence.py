"""What a claim is judged on: the papers' printed numbers, or our records. Torch-free.

Both compare two numbers, or one with a threshold, and say in words what they found. What is not there
is not guessed: the outcome is missing, and says what would have to be built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from harness import paths
from harness.artefacts import Cell
from harness.cells import KEYS, norms, printed, trust_checks, value
from harness.config import merged
from harness.plan import Plan
from harness.published import PUBLISHED
from harness.records import read_records
from harness.statistics import Difference, against, paired
from harness.verdicts import Comparison, Number, Outcome


class MissingError(Exception):
    """A number that is not there: why, or what to build; and what lacks, if many share that reason."""

    def __init__(self, reason: str, lacks: str = "") -> None:
        super().__init__(reason)
        self.outcome = Outcome(0.0, reason, missing=True, lacks=lacks)


def lacking(number: Number, keys: Collection[tuple]) -> str:
    """The first of a number's names that none of a table's keys has, or the number as a whole."""
    row = (number.dataset, number.network, number.method)
    for place, name in enumerate(row):
        if all(key[place] != name for key in keys):
            return name
    known = {key[-1] for key in keys}
    absent = [column for column in number.columns if column not in known]
    return ", ".join(absent) or f"{number.column} of {' '.join(row)}"


def named(plan: Plan, method: str) -> str:
    """A row's label; of a variant the method's own, and what varies."""
    base, *variant = method.split("~")
    return ", ".join([plan.label(base), *variant])


def described(
    plan: Plan,
    comparison: Comparison,
    one: float,
    other: float,
    test: Difference | None = None,
    note: str = "",
) -> Outcome:
    """A comparison in words: both numbers, their difference, its interval. All in percent."""
    number, rival = comparison.one, comparison.other
    text = f"{number.column}, {number.dataset}, {number.network}: "
    text += f"{named(plan, number.method)} {one:.2f}"
    if isinstance(rival, Number):
        text += f" against {other:.2f} ({named(plan, rival.method)}), difference {one - other:+.2f}"
        text += f" [{test.low:+.2f}, {test.high:+.2f}]" if test else ""
    else:
        text += f" [{test.low + other:.2f}, {test.high + other:.2f}]" if test else ""
        text += f", claimed {'below' if comparison.lower else 'above'} {other:g}"
    gain = other - one if comparison.lower else one - other
    return Outcome(gain, text + note, test)


class Printed:
    """The published numbers: no interval, so a comparison is true or false."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._tables: dict[str, dict[tuple, float]] = {}

    def __call__(self, comparison: Comparison) -> Outcome:
        rival = comparison.other
        try:
            one = self._number(comparison.one)
            other = self._number(rival) if isinstance(rival, Number) else rival
        except MissingError as error:
            return error.outcome
        return described(self.plan, comparison, one, other)

    def _number(self, number: Number) -> float:
        table = self._table(number.artefact)
        if not table:
            figure = "_fig" in number.artefact
            reason = "the papers print no number for" if figure else "values.csv has no number of"
            raise MissingError(reason, number.artefact)
        row = (number.dataset, number.network, number.method)
        if any((*row, column) not in table for column in number.columns):
            reason = f"{number.artefact} in values.csv has no"
            raise MissingError(reason, lacking(number, table.keys()))
        return float(np.mean([table[*row, column] for column in number.columns]))

    def _table(self, artefact: str) -> dict[tuple, float]:
        """By data set, network, method and column, in our names where the grid has the artefact.

        Its entry there counts, not the scale's: what a scale leaves out is printed all the same.
        """
        if artefact not in self._tables:
            own = self.plan.grid["artefacts"].get(artefact, {})
            changed = self.plan.scale.get("artefacts", {}).get(artefact, {})
            columns = dict.fromkeys([*own.get("columns", ()), *changed.get("columns", ())])
            if columns:
                entry = merged(own, changed)
                renamed = entry.get("published_rows", {})
                rows = printed(entry.get("published", artefact), renamed, columns, self.plan)
            else:
                document, _, name = artefact.partition("_")
                values = pd.read_csv(PUBLISHED / "values.csv")
                rows = values[(values.document == document) & (values.artefact == name)]
                names = {"arch": "network", "metric": "column", "value": "published"}
                rows = rows.rename(columns=names)
            keys = rows[KEYS].itertuples(index=False, name=None)
            self._tables[artefact] = dict(zip(keys, rows.published, strict=True))
        return self._tables[artefact]


def cells(plan: Plan, numbers: Iterable[Number]) -> dict[Number, list[Cell]]:
    """The planned cells behind numbers; fewer than a number has columns if some are not planned."""
    numbers = list(dict.fromkeys(numbers))
    tables = {
        name: {
            (cell.dataset, cell.network, cell.method, cell.column): cell
            for cell in plan.artefacts[name].cells
        }
        for name in {number.artefact for number in numbers} & plan.artefacts.keys()
    }
    found = {}
    for number in numbers:
        table = tables.get(number.artefact, {})
        row = (number.dataset, number.network, number.method)
        found[number] = [table[*row, name] for name in number.columns if (*row, name) in table]
    return found


class Measured:
    """Our records, image by image; each model's file is read once."""

    def __init__(self, plan: Plan, results: Path, numbers: Iterable[Number]) -> None:
        self.plan, self.results = plan, results
        self._cells = cells(plan, numbers)
        self._values: dict[tuple[str, Cell], np.ndarray] = {}  # (run, cell) -> image by image
        self._failed: dict[Number, set[str]] = {}  # trust checks
        wanted: dict[str, list[tuple[Number, Cell]]] = {}
        for number, found in self._cells.items():
            for cell in found:
                for run in cell.runs:
                    wanted.setdefault(run, []).append((number, cell))
        for run, pairs in wanted.items():
            self._read(run, pairs)

    def __call__(self, comparison: Comparison) -> Outcome:
        rival = comparison.other
        try:
            one = self._number(comparison.one)
            other = self._number(rival) if isinstance(rival, Number) else rival
        except MissingError as error:
            return error.outcome
        if self._is_measured(comparison.one):
            means = float(np.mean(one)), float(np.mean(other))
            return described(self.plan, comparison, *means, note=" minutes, without an interval")
        if isinstance(other, float):
            mean, test = other, against(one, other / 100)
        else:
            mean, test = 100 * float(other.mean()), paired(one, other)
        note = f", n = {one.shape[1]}" + (f" x {len(one)} seeds" if len(one) > 1 else "")
        points = Difference(100 * test.mean, 100 * test.low, 100 * test.high, test.p)
        return described(self.plan, comparison, 100 * float(one.mean()), mean, points, note)

    def doubts(self, numbers: Iterable[Number]) -> str:
        """Which of a claim's numbers a failed trust check touches."""
        failed = [(n, self._failed[n]) for n in numbers if self._failed.get(n)]
        if not failed:
            return ""
        names = ", ".join(sorted(set.union(*(names for _, names in failed))))
        return f" ‡ {len(failed)} of its numbers are touched by a failed trust check ({names})"

    def _is_measured(self, number: Number) -> bool:
        """Quantities of a training rather than of images, such as its minutes."""
        return any(cell.formula.op == "measured" for cell in self._cells[number])

    def _read(self, run: str, pairs: list[tuple[Number, Cell]]) -> None:
        path = paths.records(self.results, self.plan.evaluations[run].id)
        if not path.exists():
            return
        read = read_records(path, run)
        for number, cell in pairs:
            if self._is_measured(number):
                self._values[run, cell] = np.array([read[1]["trained"]["seconds"] / 60])
            else:
                self._values[run, cell] = value(cell.formula, read[0])
        pairs = [pair for pair in pairs if not self._is_measured(pair[0])]
        for name in dict.fromkeys(number.artefact for number, _ in pairs):
            artefact = self.plan.artefacts[name]
            checks = [c for c in trust_checks(self.plan, artefact, run, read) if not c.ok]
            for number, cell in pairs:
                if number.artefact == name:
                    touched = norms(self.plan, cell, artefact)
                    failed = {c.name for c in checks if c.touches(cell.column, touched)}
                    self._failed.setdefault(number, set()).update(failed)

    def _number(self, number: Number) -> np.ndarray:
        """Rows are seeds, columns images."""
        if number.artefact not in self.plan.artefacts:
            reason = self.plan.scale.get("left_out", {}).get(number.artefact)
            text = f"scale {self.plan.name} does not build"
            if reason:
                raise MissingError(f"{text} {number.artefact}: {reason}")
            raise MissingError(text, number.artefact)
        found = self._cells[number]
        if len(found) < len(number.columns):
            planned = self.plan.artefacts[number.artefact].cells
            keys = [(cell.dataset, cell.network, cell.method, cell.column) for cell in planned]
            reason = f"{number.artefact} at scale {self.plan.name} has no"
            raise MissingError(reason, lacking(number, keys))
        seeds = []
        for runs in zip(*(cell.runs for cell in found), strict=True):
            pairs = list(zip(runs, found, strict=True))
            if not all(pair in self._values for pair in pairs):
                command = f"snakemake --cores 2 {number.artefact} --config scale={self.plan.name}"
                raise MissingError(f"{number.artefact} is not built yet: {command}")
            seeds.append(np.mean([self._values[pair] for pair in pairs], axis=0))
        return np.stack(seeds)
