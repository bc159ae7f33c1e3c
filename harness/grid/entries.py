"""Which models have an AutoAttack number, and under which threat: the files of reports/robustbench.py.

Apart from it so that the workflow, which must know its outputs, need not import pandas.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.grid.artefacts import Artefact, Cell
from harness.grid.plan import Plan

THREATS = {"linf": "Linf", "l2": "L2"}  # norm -> RobustBench's name


@dataclass(frozen=True)
class Entry:
    """A model under one threat: its AutoAttack cell, its natural cell, the table that they are in."""

    artefact: Artefact
    robust: Cell
    natural: Cell
    eps: str

    @property
    def run(self) -> str:
        return self.robust.runs[0]  # a model is one training: the first seed


def entries(plan: Plan) -> dict[str, list[Entry]]:
    """File name -> the tables that have this model under this threat.

    Presets that come to the same training (`at`, and `at@last` where the last epoch is deployed anyway)
    are one model and go by the name of the first. A row that another table trains in another way
    (CIFAR-100: 200 or 120 epochs) is another model, and its name says in which table.
    """
    found: dict[tuple[str, ...], tuple[str, list[Entry]]] = {}
    first: dict[tuple[str, ...], str] = {}  # row -> its run in the first table that has it
    for artefact in plan.artefacts.values():
        if artefact.kind != "table":
            continue
        columns = {name: plan.columns.column(name, artefact.protocol) for name in artefact.columns}
        natural = {
            (cell.dataset, cell.network, cell.method): cell
            for cell in artefact.cells
            if columns[cell.column].get("attack") == "none"
        }
        for cell in artefact.cells:
            row = (cell.dataset, cell.network, cell.method)
            if columns[cell.column].get("attack") != "aa" or row not in natural:
                continue
            threats = plan.grid["datasets"][plan.dataset(cell.dataset)]["threats"]
            threat = threats[columns[cell.column]["threat"]]
            norm = THREATS[threat["norm"]]
            name = "_".join([*row, norm]).replace("@", "-")
            entry = Entry(artefact, cell, natural[row], str(threat["eps"]))
            model = (*row[:2], cell.method.partition("@")[0], entry.run, norm)
            if first.setdefault(row, entry.run) != entry.run:
                name = f"{name}-{artefact.name}"
            found.setdefault(model, (name, []))[1].append(entry)
    return dict(found.values())
