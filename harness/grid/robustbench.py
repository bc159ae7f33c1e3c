"""Which models become entries of RobustBench: one for each model and threat."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.paths import fingerprint
from harness.grid.artefacts import Artefact, Cell


def _file_name(name: str) -> str:
    """A name without what a label may hold and Snakemake reads as more than a name: {x} and <x>."""
    plain = re.sub(r"[^\w .,~+=()-]", "_", name)
    return name if plain == name else f"{plain}-{fingerprint(name)}"


ROBUSTBENCH = {"linf": "Linf", "l2": "L2"}  # norm -> RobustBench's name; it has no l_1


def _fits(cell: Cell) -> bool:
    """Is it AutoAttack in a norm of RobustBench, at the radius of its threat?"""
    meaning = cell.meaning
    return meaning.attack == "aa" and meaning.times == 1 and meaning.norms <= ROBUSTBENCH.keys()


@dataclass(frozen=True)
class Entry:
    """A model under one threat, for RobustBench: its AutoAttack cell and its natural cell."""

    artefact: Artefact
    robust: Cell
    natural: Cell

    @property
    def run(self) -> str:
        return self.robust.runs[0]  # a model is one training: the first seed

    @property
    def eps(self) -> str:
        """In grey levels where that is exact (36/255, not 12/85), else as a decimal (0.3)."""
        eps = self.robust.meaning.balls[0].eps
        levels = 255 * eps
        return f"{levels}/255" if levels.denominator == 1 else f"{float(eps):g}"


def entries(artefacts: Mapping[str, Artefact]) -> dict[str, list[Entry]]:
    """File name of a RobustBench entry -> the tables that have this model under this threat.

    Presets that come to the same training (`at`, and `at@last` where the last epoch is deployed anyway)
    are one model and go by the name of the first. A row that another table trains in another way
    (CIFAR-100: 200 or 120 epochs) is another model, and its name says in which table.
    """
    found: dict[tuple[str, ...], tuple[str, list[Entry]]] = {}
    first: dict[tuple[str, ...], str] = {}  # row -> its run in the first table that has it
    for artefact in artefacts.values():
        if artefact.kind != "table":
            continue
        cells = [((cell.dataset, cell.network, cell.method), cell) for cell in artefact.cells]
        natural = {row: cell for row, cell in cells if cell.meaning.attack == "none"}
        for row, cell in cells:
            if not _fits(cell) or row not in natural:
                continue
            norm = ROBUSTBENCH[cell.meaning.balls[0].norm]
            name = _file_name("_".join([*row, norm]).replace("@", "-"))
            entry = Entry(artefact, cell, natural[row])
            model = (*row[:2], cell.method.partition("@")[0], entry.run, norm)
            if first.setdefault(row, entry.run) != entry.run:
                name = f"{name}-{artefact.name}"
            found.setdefault(model, (name, []))[1].append(entry)
    return dict(found.values())
