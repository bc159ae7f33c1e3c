"""What is asked of a network: columns, radii, images. From the words of `benchmark` to probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from harness.attacks import ATTACKS
from harness.attacks.balls import Ball
from harness.core.config import merged, read_grid, read_scale
from harness.core.errors import expected, unknown
from harness.data import load
from harness.grid.columns import PROTOCOLS, Column, Columns, Probe

NORMS = ("linf", "l2", "l1")
NATURAL, ALL = "NAT", "all"
_STEPS = {"pgd": 20, "mim": 20, "cw": 30}  # of the attacks that --steps is for
_NAMES = {"aa": "AA", "rand": "AA_rand", "square": "Square", "fab-t": "FAB_t"}
# Steps of PGD for a set without a threat of its own, as shares of eps: those of CIFAR-10.
_SHARES = {"linf": Fraction(1, 4), "l2": Fraction(15, 128), "l1": Fraction(1, 12)}


@dataclass(frozen=True)
class Question:
    """Resolved: what the table shows, and the records that it needs."""

    dataset: str
    examples: int
    shown: tuple[Column, ...]
    attacks: tuple[Column, ...]  # all columns that are one attack, for the checks of the records
    scale: str
    autoattack: Mapping[str, int]  # what the scale changes of AutoAttack's budget

    @property
    def probes(self) -> tuple[Probe, ...]:
        found = {probe.id: probe for column in self.shown for probe in column.probes}
        return tuple(found[name] for name in sorted(found))


def asked(
    dataset: str,
    attacks: str | Sequence[str],
    *,
    norm: str = "linf",
    eps: Any = None,
    steps: int | None = None,
    examples: int = 1000,
    batch_size: int = 250,
    seed: int = 0,
    scale: str = "paper",
    grid: Path | None = None,
) -> Question:
    """`attacks`: `all`, names of attacks (aa, rand, pgd, square, ...) or of columns of the grid."""
    if norm not in NORMS:
        raise unknown("norm", norm, NORMS, "--norm")
    content, budget = read_grid(grid), read_scale(scale)
    stand_in = budget["datasets"].get(dataset, dataset)
    if stand_in != dataset:
        found = f"its stand-in at scale {scale}, {stand_in}"
        raise expected(dataset, found, f"add --scale paper, or write --data {stand_in}")
    known = content["datasets"].get(dataset, {}).get("threats", {})
    threats = {**known, **_threat(known, norm, eps, dataset)}
    content = merged(content, {"datasets": {dataset: {"threats": threats}}})
    content["datasets"][dataset]["threats"] = threats
    content = {**content, "columns": dict(content["columns"])}
    count = min(examples, len(load(dataset, "test")))
    test = {"examples": count, "batch_size": batch_size, "seed": seed}
    columns = Columns(content, {**budget, "test": test})
    words = attacks.split(",") if isinstance(attacks, str) else attacks
    names = [_column(word.strip(), columns, norm, steps) for word in words if word != ALL]
    names += _all(columns, dataset) if ALL in words else []
    names = list(dict.fromkeys([NATURAL, *names]))
    measured = columns.autoattack(names, PROTOCOLS[0])
    shown = tuple(columns.resolved(name, dataset, PROTOCOLS[0], measured) for name in names)
    single = [column for column in shown if column.attack is not None]
    every = dict.fromkeys([*single, *columns.attacks(dataset, PROTOCOLS[0], measured)])
    return Question(dataset, count, shown, tuple(every), scale, budget["autoattack"])


def _threat(known: Mapping[str, Any], norm: str, eps: Any, dataset: str) -> dict[str, Any]:
    """The threat of a norm with the radius that was asked for, and a step in proportion."""
    if eps is None:
        if norm not in known:
            raise expected(f"a radius for {norm} on {dataset}", "none", "give one, such as --eps 8/255")
        return {}
    radius = exact(eps)
    Ball(norm, radius)  # refuses 8 for 8/255
    share = _SHARES[norm]
    if norm in known:
        share = Fraction(str(known[norm]["test_step"])) / Fraction(str(known[norm]["eps"]))
    if norm in known and Fraction(str(known[norm]["eps"])) == radius:
        return {}
    return {norm: {"norm": norm, "eps": str(radius), "test_step": str(share * radius)}}


def exact(eps: Any) -> Fraction:
    """8/255 as a text, a fraction, or the float that Python makes of it."""
    try:
        return Fraction(eps).limit_denominator(10**6) if isinstance(eps, float) else Fraction(str(eps))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise expected("a number or fraction for --eps", repr(eps), "write 8/255") from None


def _column(word: str, columns: Columns, norm: str, steps: int | None) -> str:
    """The name of a column for a word: one of the grid's, or one that is made for an attack."""
    grid = columns.grid["columns"]
    if word in ATTACKS:
        entry: dict[str, Any] = {"attack": word, "threat": norm}
        name = _NAMES.get(word, word.upper().replace("-", "_"))
        if word in _STEPS:
            entry["steps"] = steps or _STEPS[word]
            name += str(entry["steps"])
        grid[name] = entry
        return name
    if word not in grid:
        raise unknown("column or attack", word, [*grid, *ATTACKS, ALL], "--attacks")
    if "measured" in grid[word]:
        raise expected("a column that can be measured here", word, "leave it out")
    if steps is not None and "steps" in grid[word]:
        raise expected(f"--steps with {' or '.join(_STEPS)}", word, "write --attacks pgd --steps 50")
    if norm != "linf" and grid[word].get("threat") == "linf":
        grid[word] = {**grid[word], "threat": norm}
    return word


def _all(columns: Columns, dataset: str) -> list[str]:
    """All columns that the data set has threats for, without second names and what is no record."""
    found: dict[str, str] = {}
    for name in columns.grid["columns"]:
        entry = columns.column(name)
        if "measured" in entry:  # the cost of its training is unknown
            continue
        parts = entry.get("mean", entry.get("all", [name]))
        if all(columns.affords(part, dataset, PROTOCOLS[0]) for part in parts):
            found.setdefault(str(entry), name)
    return list(found.values())
