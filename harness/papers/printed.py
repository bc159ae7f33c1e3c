"""The papers' printed numbers as evidence. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.core.config import merged
from harness.grid.plan import Plan
from harness.papers.comparisons import Comparison, Evidence, MissingError, Number, Source
from harness.papers.published import KEYS, NUMBERS, printed, printed_table

if TYPE_CHECKING:
    import pandas as pd

Table = dict[tuple, float]  # by data set, network, method and column


class Printed(Source):
    """The printed numbers. They have no interval, so a comparison is true or false.

    With a plan, rows and columns have our names where the grid has the artefact; otherwise the papers'.
    """

    def __init__(self, values: pd.DataFrame, plan: Plan | None = None) -> None:
        super().__init__(plan)
        self.values, self.plan = values, plan
        self._tables: dict[str, dict[str, Table]] = {}

    def __call__(self, comparison: Comparison) -> Evidence:
        one, rival = self._number(comparison.one), comparison.other
        other = self._number(rival) if isinstance(rival, Number) else rival
        return self.describe(comparison, Evidence(one, other))

    def _number(self, number: Number) -> float:
        if number.artefact not in self._tables:
            self._tables[number.artefact] = self._read(number.artefact)
        table = self._tables[number.artefact]
        if not table["published"]:
            figure = "_fig" in number.artefact
            reason = "the papers print no number for" if figure else "values.csv has no number of"
            raise MissingError(reason, number.artefact)
        if number.classes or number.wrong_by:
            raise MissingError("the papers print no number for some of the images")
        deviation = number.quantity == "deviation"
        found = table["published_std" if deviation else "published"]
        means = []
        for part in number.accuracies:
            if any((*part.row, column) not in found for column in part.columns):
                reason = f"{number.artefact} in values.csv has no{' deviation of' * deviation}"
                raise MissingError(reason, part.absent(found))
            means.append(float(np.mean([found[*part.row, column] for column in part.columns])))
        return number.computed(means)

    def _read(self, artefact: str) -> dict[str, Table]:
        """Numbers and deviations. A scale may leave out what the papers print, so the grid counts."""
        own = self.plan.grid["artefacts"].get(artefact, {}) if self.plan else {}
        changed = self.plan.scale.get("artefacts", {}).get(artefact, {}) if self.plan else {}
        columns = dict.fromkeys([*own.get("columns", ()), *changed.get("columns", ())])
        if self.plan and columns:
            entry = merged(own, changed)
            renamed = entry.get("published_rows", {})
            rows = printed(entry.get("published", artefact), renamed, columns, self.plan)
        else:
            rows = printed_table(self.values, artefact)
        kinds = rows.set_index(KEYS)[NUMBERS]
        return {kind: kinds[kind].dropna().to_dict() for kind in kinds}
