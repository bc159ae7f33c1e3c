"""What a claim is judged on: how a comparison is told, and the papers' printed numbers. Torch-free.

Our records (measured.py) and the printed numbers alike compare two numbers, or one with a
threshold, and say in words what they found. What is not there is not guessed: the outcome is missing,
and says what would have to be built.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from harness.core.config import merged
from harness.core.statistics import Difference
from harness.grid.plan import Plan
from harness.papers.printed import KEYS, printed
from harness.papers.published import PUBLISHED
from harness.papers.verdicts import Comparison, Number, Outcome


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


def subject(plan: Plan, number: Number) -> str:
    """Whose number it is, and of which images if not of all."""
    text = named(plan, number.method)
    text += f" minus {named(plan, number.minus)}" if number.minus else ""
    text += f" on {', '.join(number.classes)}" if number.classes else ""
    return text + (f" where {named(plan, number.wrong_by)} is wrong" if number.wrong_by else "")


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
    text += f"{subject(plan, number)} {one:.2f}"
    if isinstance(rival, Number):
        text += f" against {other:.2f} ({subject(plan, rival)}), difference {one - other:+.2f}"
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
        self._tables: dict[str, dict[str, dict[tuple, float]]] = {}

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
        if not table["published"]:
            figure = "_fig" in number.artefact
            reason = "the papers print no number for" if figure else "values.csv has no number of"
            raise MissingError(reason, number.artefact)
        if len(number.parts) > 1 or number.classes:
            raise MissingError("the papers print no number for some of the images")
        row = (number.dataset, number.network, number.method)
        found = table["published_std" if number.deviation else "published"]
        if any((*row, column) not in found for column in number.columns):
            what = "deviation of" if number.deviation else ""
            reason = f"{number.artefact} in values.csv has no {what}".strip()
            raise MissingError(reason, lacking(number, found))
        return float(np.mean([found[*row, column] for column in number.columns]))

    def _table(self, artefact: str) -> dict[str, dict[tuple, float]]:
        """Numbers and deviations by data set, network, method and column.

        In our names where the grid has the artefact. Its entry there counts, not the scale's: what a
        scale leaves out is printed all the same.
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
                names = {"arch": "network", "metric": "column"}
                names |= {"value": "published", "std": "published_std"}
                rows = rows.rename(columns=names)
            kinds = rows.set_index(KEYS)[["published", "published_std"]]
            self._tables[artefact] = {kind: kinds[kind].dropna().to_dict() for kind in kinds}
        return self._tables[artefact]
