"""Our records as evidence, image by image. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.core import paths
from harness.core.paths import read_description
from harness.core.statistics import Difference, paired
from harness.evaluation.records import read_records, value
from harness.evaluation.trust import checks_path, read_checks
from harness.grid.artefacts import Cell
from harness.grid.columns import Column, Formula
from harness.grid.plan import Plan
from harness.papers.comparisons import Comparison, Evidence, MissingError, Number, Source
from harness.papers.unpaired import deviation_test, subset_test, welch_test

BEST_EPOCH = "best_epoch"  # not a column of a table: it comes from a run's description
UNITS = {"minutes": " minutes", BEST_EPOCH: " % of the epochs"}


def planned_cells(plan: Plan, numbers: Iterable[Number]) -> dict[Number, list[Cell]]:
    """The planned cells behind numbers; fewer than a number has columns if some are not planned."""
    numbers = list(dict.fromkeys(numbers))
    tables = {
        name: {_key(cell): cell for cell in plan.artefacts[name].cells}
        for name in {number.artefact for number in numbers} & plan.artefacts.keys()
    }
    found = {}
    for number in numbers:
        table = tables.get(number.artefact, {})
        keys = [(*number.row, column) for column in number.columns]
        found[number] = [table[key] for key in keys if key in table]
        if number.columns == (BEST_EPOCH,):
            found[number] = [
                replace(cell, meaning=Column(BEST_EPOCH, Formula("measured", (BEST_EPOCH,))))
                for key, cell in table.items()
                if key[:3] == number.row
            ][:1]
    return found


def _key(cell: Cell) -> tuple[str, str, str, str]:
    return cell.dataset, cell.network, cell.method, cell.column


class Measured(Source):
    """Our records, image by image; each model's file is read once."""

    def __init__(self, plan: Plan, results: Path, reports: Path, numbers: Iterable[Number]) -> None:
        super().__init__(plan)
        self.plan, self.results = plan, results
        self._cells = planned_cells(plan, numbers)
        self._checks = {  # of the artefacts that are built: artefact -> run -> its checks
            name: read_checks(plan, name, reports)
            for name in {number.artefact for number in self._cells} & plan.artefacts.keys()
            if checks_path(reports, plan, name).exists()
        }
        self._values: dict[tuple[str, Cell], np.ndarray] = {}  # (run, cell) -> image by image
        self._labels: dict[str, dict[str, np.ndarray]] = {}  # run -> data set -> classes
        self._failed: dict[Number, set[str]] = {}  # trust checks
        wanted: dict[str, list[tuple[Number, Cell]]] = {}
        for number, found in self._cells.items():
            for cell in found:
                for run in cell.runs:
                    wanted.setdefault(run, []).append((number, cell))
        for run, pairs in wanted.items():
            self._read(run, pairs)

    def __call__(self, comparison: Comparison) -> Evidence:
        if self._is_measured(comparison.one.accuracies[0]):
            return self._trainings(comparison)
        if comparison.one.quantity == "deviation":
            return self._deviation(comparison)
        one = comparison.one
        decidable = one.quantity == "accuracy" or (one.quantity == "lead" and len(one.rivals) == 1)
        if comparison.relation == "equal" or not decidable:
            raise MissingError(
                "our records have no test for", f"{one.quantity} {comparison.relation}"
            )
        return self._images(comparison)

    def _images(self, comparison: Comparison) -> Evidence:
        one, rival = comparison.one, comparison.other
        mine, chosen = self._sample(one)
        seeds, n = len(mine), f"{chosen.sum() / len(mine):.0f}"
        if not isinstance(rival, Number):
            other, test = rival, subset_test(mine, chosen, rival / 100)
        else:
            theirs, _ = self._sample(rival)
            other = 100 * float(theirs.mean())
            if one.classes == rival.classes:
                test = paired(mine, theirs)
            else:
                test, n = welch_test(mine, theirs), f"{n} and {theirs.shape[1]}"
        note = f", n = {n}" + (f" x {seeds} seeds" if seeds > 1 else "")
        points = Difference(100 * test.mean, 100 * test.low, 100 * test.high, test.p)
        return self.describe(comparison, 100 * float(mine[chosen].mean()), other, points, note)

    def _sample(self, number: Number) -> tuple[np.ndarray, np.ndarray]:
        """A number image by image, and which images count; both by seed."""
        own = number.accuracies[0]
        values = self._values_of(own)
        for rival in number.rivals:
            values = values.astype(float) - self._values_of(replace(own, method=rival))
        chosen = np.ones(values.shape, bool)
        if number.wrong_by:
            chosen = self._values_of(replace(own, method=number.wrong_by)) < 1
        if number.classes:
            there = self._of_classes(number, own)
            values, chosen = values[:, there], chosen[:, there]
        if not chosen.any():
            raise MissingError("there is no such image for", self.subject(number))
        return values, chosen

    def _of_classes(self, number: Number, own: Number) -> np.ndarray:
        """Which images are of the number's classes; a stand-in data set has other classes."""
        name = self.plan.dataset(number.dataset)
        known = self.plan.grid["datasets"][name].get("classes", ())
        for missing in (one for one in number.classes if one not in known):
            raise MissingError(f"{name} at scale {self.plan.name} has no class", missing)
        labels = self._labels[self._cells[own][0].runs[0]][name]
        return np.isin(labels, [known.index(one) for one in number.classes])

    def _trainings(self, comparison: Comparison) -> Evidence:
        """Quantities of a training, such as its minutes, have no images and so no interval."""
        one, rival = comparison.one, comparison.other
        mine = float(np.mean(self._values_of(one)))
        other = float(np.mean(self._values_of(rival))) if isinstance(rival, Number) else rival
        note = f"{UNITS[self._cells[one][0].formula.parts[0]]}, without an interval"
        return self.describe(comparison, mine, other, note=note)

    def _deviation(self, comparison: Comparison) -> Evidence:
        number, limit = comparison.one, comparison.other
        assert isinstance(limit, float)
        values = 100.0 * self._values_of(number.accuracies[0])
        if len(values) < 2:
            reason = f"{self._at_scale(number)} has one seed of"
            raise MissingError(reason, self.label(number.method))
        found = deviation_test(values, limit)
        note = f", {len(values)} seeds, found {found.total:.2f} of which {values.shape[1]} images "
        note += f"explain {found.of_images:.2f}"
        return self.describe(comparison, found.of_seeds, limit, found.test, note)

    def doubts(self, numbers: Iterable[Number]) -> str:
        """Which of these numbers a failed trust check touches."""
        failed = [(n, self._failed[n]) for n in numbers if self._failed.get(n)]
        if not failed:
            return ""
        names = ", ".join(sorted(set.union(*(names for _, names in failed))))
        return f" ‡ {len(failed)} of its numbers are touched by a failed trust check ({names})"

    def _is_measured(self, number: Number) -> bool:
        """Is it a quantity of a training, such as its minutes, and not of images?"""
        return any(cell.formula.op == "measured" for cell in self._cells[number])

    def _read(self, run: str, pairs: list[tuple[Number, Cell]]) -> None:
        path = paths.records(self.results, self.plan.evaluations[run].id)
        if not path.exists():
            return
        pairs = [pair for pair in pairs if run in self._checks.get(pair[0].artefact, ())]
        read = read_records(path, run)
        self._labels[run] = read[1]["labels"]
        for number, cell in pairs:
            if number.columns == (BEST_EPOCH,):
                if paths.description(self.results, run).exists():
                    self._values[run, cell] = self._best_epoch(run)
            elif self._is_measured(number):
                self._values[run, cell] = np.array([read[1]["trained"]["seconds"] / 60])
            else:
                self._values[run, cell] = value(cell.formula, read[0])
        pairs = [pair for pair in pairs if not self._is_measured(pair[0])]
        for name in dict.fromkeys(number.artefact for number, _ in pairs):
            checks = [c for c in self._checks[name][run]["checks"] if not c.ok]
            for number, cell in pairs:
                if number.artefact == name:
                    failed = {c.name for c in checks if c.touches(cell.meaning)}
                    self._failed.setdefault(number, set()).update(failed)

    def _best_epoch(self, run: str) -> np.ndarray:
        """The epoch that a run deploys, in percent of all its epochs."""
        deployed = read_description(self.results, run)["deployed_epoch"]
        return np.array([100 * deployed / self.plan.run(run).recipe.epochs])

    def _at_scale(self, number: Number) -> str:
        return f"{number.artefact} at scale {self.plan.name}"

    def _values_of(self, number: Number) -> np.ndarray:
        """An accuracy image by image: rows are seeds, columns images."""
        if number.artefact not in self.plan.artefacts:
            reason = self.plan.scale.get("left_out", {}).get(number.artefact)
            text = f"scale {self.plan.name} does not build"
            if reason:
                raise MissingError(f"{text} {number.artefact}: {reason}")
            raise MissingError(text, number.artefact)
        found = self._cells[number]
        if len(found) < len(number.columns):
            keys = [_key(cell) for cell in self.plan.artefacts[number.artefact].cells]
            raise MissingError(f"{self._at_scale(number)} has no", number.absent(keys))
        if number.columns == (BEST_EPOCH,):
            uses = {self.plan.run(run).selection.use for cell in found for run in cell.runs}
            if "last" in uses:
                reason = f"{self._at_scale(number)} takes the last epoch of"
                raise MissingError(reason, self.label(number.method))
        seeds = []
        for runs in zip(*(cell.runs for cell in found), strict=True):
            pairs = list(zip(runs, found, strict=True))
            if not all(pair in self._values for pair in pairs):
                command = f"snakemake --cores 2 {number.artefact} --config scale={self.plan.name}"
                raise MissingError(f"{number.artefact} is not built yet: {command}")
            seeds.append(np.mean([self._values[pair] for pair in pairs], axis=0))
        return np.stack(seeds)
