"""Can a number be believed? Checks that need records only; the model's own are in checks.py.

Numbered as in the protocol: 5 AutoAttack never above a component; 6 Square breaking what gradient
attacks missed; 7 more steps never weaker, beyond paired noise; 10 as many gradient calls as the name
says; 11 the undefended model falls; 12 the gap between PGD and AutoAttack; 13 selection disclosed.
Beside them one of ours, better than guessing: a model that answers the same whatever it is shown keeps
its 10 % under every attack, and nothing else here would notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.attacks.autoattack import STANDARD
from harness.core.statistics import mcnemar, wilson
from harness.evaluation.records import Record

# An AutoAttack, and the PGD that is held against it.
PGD_OF = {"AA": "PGD20", "AA_inf": "PGD20_inf", "AA_2": "PGD20_2"}
_SQUARE = STANDARD.index("square")
_SQUARE_SHARE = 0.002  # as AutoAttack's own warning has it
_LARGEST_GAP = 15.0  # points between PGD20 and AA
_UNDEFENDED = 0.1
_NOISE = 0.05  # p-value below which "stronger attack, higher accuracy" is not chance


@dataclass(frozen=True)
class Check:
    """`norm` or `columns` say which numbers it touches; neither: all of the model's."""

    name: str
    ok: bool
    found: str
    norm: str | None = None
    columns: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Check:
        columns = entry.get("columns")
        return cls(**{**entry, "columns": None if columns is None else tuple(columns)})

    def touches(self, column: str, norms: set[str]) -> bool:
        if self.columns is not None:
            return column in self.columns
        return self.norm is None or self.norm in norms


def record_checks(
    columns: Mapping[str, Record],
    flags: Mapping[str, np.ndarray],
    undefended: bool,
    selection: str | None,
    labels: np.ndarray | None,
) -> list[Check]:
    """`columns`: the records behind those columns that are one attack; `flags`: AA as well."""
    checks = [*_gradient_calls(columns), *_weaker(columns), *_autoattack(columns, flags)]
    if "NAT" in columns and labels is not None:
        checks.append(_better_than_guessing(columns["NAT"], labels))
    if undefended and "PGD20" in columns:
        left = float(columns["PGD20"].correct.mean())
        found = f"{100 * left:.1f} % left under PGD20"
        checks.append(Check("the undefended model falls", left <= _UNDEFENDED, found))
    if selection is not None:  # nobody told us how somebody else's model was selected
        found = f"selection: {selection}"
        ok = selection != "paper-test"
        # It touches no column: such numbers carry a mark of their own.
        checks.append(Check("checkpoint not selected on test data", ok, found, columns=()))
    warned = {warning for record in columns.values() for warning in record.warnings}
    if warned:
        touched = tuple(name for name, record in columns.items() if record.warnings)
        checks.append(
            Check("AutoAttack had no warnings", False, "; ".join(sorted(warned)), columns=touched)
        )
    return checks


def _gradient_calls(columns: Mapping[str, Record]) -> list[Check]:
    """PGD100 must have made 100 of them. The records count what really happened."""
    checks = []
    for name, record in columns.items():
        promised = re.match(r"PGD(\d+)", name)
        if promised and record.correct.any() | (record.backward > 0):
            found = f"{record.backward} gradient calls"
            ok = record.backward == int(promised[1])
            checks.append(Check(f"{name} takes {promised[1]} steps", ok, found, columns=(name,)))
    return checks


def _weaker(columns: Mapping[str, Record]) -> list[Check]:
    checks = []
    for weak, strong in (("PGD20", "PGD100"), ("PGD100", "APGD_ce")):
        if weak in columns and strong in columns:
            one, other = columns[weak].correct, columns[strong].correct
            p = mcnemar(one, other)
            ok = other.mean() <= one.mean() or p >= _NOISE
            found = f"{100 * one.mean():.2f} and {100 * other.mean():.2f} %, p = {p:.3g}"
            checks.append(
                Check(f"{strong} no weaker than {weak}", ok, found, columns=(weak, strong))
            )
    return checks


def _autoattack(columns: Mapping[str, Record], flags: Mapping[str, np.ndarray]) -> list[Check]:
    checks = []
    components = [name for name in ("APGD_ce", "APGD_t", "FAB_t", "Square") if name in flags]
    if "AA" in flags and "AA" not in columns and components:  # a cascade draws other numbers
        above = [name for name in components if (flags["AA"] & ~flags[name]).any()]
        found = f"above {', '.join(above)}" if above else "nowhere above a component"
        checks.append(
            Check("AA at most each component, per image", not above, found, columns=("AA",))
        )
    if len(components) == 4:
        gradient = flags["APGD_ce"] & flags["APGD_t"] & flags["FAB_t"]
        checks.append(_masking(gradient & ~flags["Square"]))
    for name, pgd in PGD_OF.items():
        if name in columns:  # a record of all four is a cascade: Square had what the others left
            checks.append(_masking(columns[name].broken_by == _SQUARE))
        if name in flags and pgd in flags:
            gap = 100 * float(flags[pgd].mean() - flags[name].mean())
            found = f"{pgd} minus {name} is {gap:.1f} points"
            checks.append(
                Check("PGD close to AutoAttack", gap <= _LARGEST_GAP, found, columns=(pgd,))
            )
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
