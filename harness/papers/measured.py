"""Our records as evidence, image by image. Torch-free."""

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from harness.core import paths
from harness.core.fronts import area, bootstrap, resampled
from harness.core.statistics import Difference, paired, within
from harness.evaluation.records import read_evaluation, value
from harness.evaluation.trust import checks_path, read_checks
from harness.grid.artefacts import Cell
from harness.grid.columns import Column, Formula
from harness.grid.plan import Plan
from harness.papers.comparisons import Comparison, Evidence, MissingError, Number, Source
from harness.papers.trainings import BEST_EPOCH, QUANTITIES
from harness.papers.unpaired import deviation_test, subset_test, welch_test

UNITS = {"minutes": " minutes", **{name: unit for name, (unit, _) in QUANTITIES.items()}}
_OF_TRAININGS = [Column(name, Formula("measured", (name,))) for name in QUANTITIES]
_key = attrgetter("dataset", "network", "method", "column")


def planned_cells(plan: Plan, numbers: Iterable[Number]) -> dict[Number, list[Cell]]:
    """The planned cells behind numbers; fewer than a number has columns if some are not planned."""
    numbers = list(dict.fromkeys(numbers))
    rows: dict[tuple, dict[str, Cell]] = {}  # artefact, data set, network, method -> by column
    for name in {number.artefact for number in numbers} & plan.artefacts.keys():
        for row in plan.artefacts[name].rows:
            own = [Cell(row.method, row.dataset, row.network, row.runs, of) for of in _OF_TRAININGS]
            rows[name, row.dataset, row.network, row.method] = {cell.column: cell for cell in own}
        for cell in plan.artefacts[name].cells:
            rows[name, *_key(cell)[:3]][cell.column] = cell
    known = {number: rows.get((number.artefact, *number.row), {}) for number in numbers}
    return {n: [row[column] for column in n.columns if column in row] for n, row in known.items()}


class Measured(Source):
    """Our records, image by image; each model's file is read once."""

    def __init__(self, plan: Plan, results: Path, reports: Path, numbers: Iterable[Number]) -> None:
        super().__init__(plan)
        self.plan, self.results = plan, results
        self._cells = planned_cells(plan, numbers)
        named = {number.artefact for number in self._cells} & plan.artefacts.keys()
        there = {name for name in named if checks_path(reports, plan, name).exists()}
        self._failed = {  # (artefact, run) -> failed trust checks; of artefacts that are built
            (name, run): [check for check in about["checks"] if not check.ok]
            for name in there
            for run, about in read_checks(plan, name, reports).items()
        }
        for name in there:  # a figure of trainings checks no model
            if not plan.artefacts[name].columns:
                self._failed |= {(name, run): [] for run in plan.artefacts[name].runs}
        self._values: dict[tuple[str, Cell], np.ndarray] = {}  # (run, cell) -> image by image
        self._labels: dict[str, dict[str, np.ndarray]] = {}  # run -> data set -> classes
        built: dict[str, list[Cell]] = {}
        for number in self._cells:
            for run, cell in self._built(number):
                built.setdefault(run, []).append(cell)
        for run, cells in built.items():
            self._read(run, cells)

    def _built(self, number: Number) -> list[tuple[str, Cell]]:
        """The runs and cells behind a number, of an artefact that is built."""
        pairs = [(run, cell) for cell in self._cells[number] for run in cell.runs]
        return [pair for pair in pairs if (number.artefact, pair[0]) in self._failed]

    def __call__(self, comparison: Comparison) -> Evidence:
        one, relation = comparison.one, comparison.relation
        if any(cell.formula.op == "measured" for cell in self._cells[one.accuracies[0]]):
            return self._trainings(comparison)
        if one.quantity == "deviation":
            return self._deviation(comparison)
        if one.quantity == "area":
            return self._areas(comparison)
        decidable = one.quantity == "accuracy" or (one.quantity == "lead" and len(one.rivals) == 1)
        alike = (
            relation == "equal" and one.quantity == "accuracy" and isinstance(comparison.other, Number)
        )
        if not decidable or (relation == "equal" and not alike):
            raise MissingError("our records have no test for", f"{one.quantity} {relation}")
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
            if comparison.relation == "equal":
                test = within(paired(mine, theirs), comparison.tolerance / 100)
                n += f", claimed within {comparison.tolerance:g}"
            elif one.classes == rival.classes:
                test = paired(mine, theirs)
            else:
                test, n = welch_test(mine, theirs), f"{n} and {theirs.shape[1]}"
        note = f", n = {n}" + (f" x {seeds} seeds" if seeds > 1 else "")
        points = Difference(100 * test.mean, 100 * test.low, 100 * test.high, test.p)
        found = Evidence(100 * float(mine[chosen].mean()), other, note, points)
        return self.describe(comparison, found)

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
        return self.describe(comparison, Evidence(mine, other, note))

    def _deviation(self, comparison: Comparison) -> Evidence:
        number, limit = comparison.one, comparison.other
        assert isinstance(limit, float)
        values = 100.0 * self._values_of(number.accuracies[0])
        if len(values) < 2:
            reason = f"{number.artefact} at scale {self.plan.name} has one seed of"
            raise MissingError(reason, self.label(number.method))
        found = deviation_test(values, limit)
        note = f", {len(values)} seeds, found {found.total:.2f} of which {values.shape[1]} images "
        note += f"explain {found.of_images:.2f}"
        return self.describe(comparison, Evidence(found.of_seeds, limit, note, found.test))

    def _areas(self, comparison: Comparison) -> Evidence:
        """Two fronts, on the same resampled images."""
        fronts = [number for number in (comparison.one, comparison.other) if isinstance(number, Number)]
        means = [np.array([self._values_of(own).mean(axis=0) for own in n.accuracies]) for n in fronts]
        drawn = np.split(resampled(np.concatenate(means)), [len(means[0])], axis=1)
        one, other = (area(own.mean(axis=1).reshape(-1, 2)) for own in means)
        often = [np.array([area(own.reshape(-1, 2)) for own in each]) for each in drawn]
        test = bootstrap(100 * (one - other), 100 * (often[0] - often[1]))
        note = f", n = {means[0].shape[1]}, bootstrap over images"
        return self.describe(comparison, Evidence(100 * one, 100 * other, note, test))

    def doubts(self, numbers: Iterable[Number]) -> str:
        """Which of these numbers a failed trust check touches."""
        failed = [names for names in map(self._touching, numbers) if names]
        if not failed:
            return ""
        names = ", ".join(sorted(set.union(*failed)))
        return f" ‡ {len(failed)} of its numbers are touched by a failed trust check ({names})"

    def _touching(self, number: Number) -> set[str]:
        return {
            check.name
            for run, cell in self._built(number)
            if (run, cell) in self._values and cell.formula.op != "measured"
            for check in self._failed[number.artefact, run]
            if check.touches(cell.meaning)
        }

    def _read(self, run: str, cells: list[Cell]) -> None:
        of_training = [cell for cell in cells if cell.column in QUANTITIES]
        for cell in of_training if paths.description(self.results, run).exists() else ():
            _, measure = QUANTITIES[cell.column]
            found = measure(self.results, self.plan.run(run))
            if found is not None:
                self._values[run, cell] = np.array([found])
        evaluation = self.plan.evaluations.get(run)
        if evaluation is None or not paths.records(self.results, evaluation.id).exists():
            return
        records, about = read_evaluation(self.results, evaluation)
        self._labels[run] = about["labels"]
        for cell in (cell for cell in cells if cell not in of_training):
            if cell.formula.op != "measured":
                self._values[run, cell] = value(cell.formula, records)
            else:
                self._values[run, cell] = np.array([about["trained"]["seconds"] / 60])

    def _values_of(self, number: Number) -> np.ndarray:
        """An accuracy image by image: rows are seeds, columns images."""
        name, scale, found = number.artefact, self.plan.name, self._cells[number]
        if name not in self.plan.artefacts:
            reason = self.plan.scale.get("left_out", {}).get(name)
            if reason:
                raise MissingError(f"scale {scale} does not build {name}: {reason}")
            raise MissingError(f"scale {scale} does not build", name)
        if len(found) < len(number.columns):
            rows, known = (
                self.plan.artefacts[name].rows,
                self.plan.artefacts[name].columns or QUANTITIES,
            )
            keys = [(r.dataset, r.network, r.method, column) for r in rows for column in known]
            raise MissingError(f"{name} at scale {scale} has no", number.absent(keys))
        runs = [self.plan.run(run) for cell in found for run in cell.runs]
        if BEST_EPOCH in number.columns and any(run.selection.use == "last" for run in runs):
            reason = f"{name} at scale {scale} takes the last epoch of"
            raise MissingError(reason, self.label(number.method))
        if not all((run, cell) in self._values for cell in found for run in cell.runs):
            command = f"snakemake --cores 2 {name} --config scale={scale}"
            raise MissingError(f"{name} is not built yet: {command}")
        columns = [[self._values[run, cell] for run in cell.runs] for cell in found]
        return np.mean(columns, axis=0)
