"""Any evaluation from its record file alone, ours or another's, without a plan; and its numbers.

A record file names its probes as JSON: data set, attack, radius, seed. That is enough for a table.
AutoAttack is the cascade where it was run as one, and else what survives all four of its components.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from harness.attacks.autoattack import STANDARD
from harness.core.errors import expected, unknown
from harness.core.files import read_arrays
from harness.core.statistics import wilson
from harness.evaluation.records import Record, read_records
from harness.evaluation.trust import Check
from harness.grid.columns import EvalRun

_MOST = 10_000_000  # images of a probe: a file that says more of itself is not believed
_ABOUT = 2**22


@dataclass(frozen=True)
class Asked:
    """What one record is of."""

    id: str
    dataset: str
    examples: int
    attack: str  # the attack's slug, or `natural`
    norm: str | None
    eps: Fraction | None
    seed: int
    heat: bool | None = None


@dataclass(frozen=True)
class Evaluation:
    """One model, all of its records."""

    name: str
    run: str
    probes: Mapping[str, Asked]
    records: Mapping[str, Record]
    about: Mapping[str, Any]

    @property
    def foreign(self) -> bool:
        """Was the model trained elsewhere?"""
        return not self.about.get("trained")

    @property
    def failed(self) -> list[Check]:
        checks = map(Check.from_json, self.about.get("checks", ()))
        return [check for check in checks if not check.ok]


@dataclass(frozen=True)
class Number:
    """An accuracy in %, with what it was measured on."""

    dataset: str
    attack: str
    norm: str | None
    eps: Fraction | None
    accuracy: float
    low: float
    high: float
    n: int
    flags: np.ndarray


def evaluations(results: Path) -> Iterator[Evaluation]:
    for path in sorted(results.glob("records/*.npz")):
        yield read(path)


def named(results: Path, name: str) -> Evaluation:
    """An evaluation by the name of its record file, or by its model if that has only one."""
    known = {path.stem: path for path in sorted(results.glob("records/*.npz"))}
    own = [path for stem, path in known.items() if name in (stem, stem.rpartition("-")[0])]
    if len(own) > 1:
        raise expected(f"one evaluation of {name}", ", ".join(p.stem for p in own), "name one of them")
    if not own:
        raise unknown("evaluation", name, known, str(results / "records"))
    return read(own[0])


def read(path: Path) -> Evaluation:
    arrays = read_arrays(path, {"about": (np.uint8, _ABOUT)})
    try:
        about = json.loads(arrays["about"].tobytes())
        probes = {name: _asked(name, entry) for name, entry in about["probes"].items()}
        wanted = SimpleNamespace(run=about["run"], probes=list(probes.values()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"something else ({type(error).__name__}: {error})"
        raise expected(f"the records of an evaluation in {path}", found, "evaluate again") from None
    records, about = read_records(path, cast(EvalRun, wanted))
    return Evaluation(path.stem, about["run"], probes, records, about)


def _asked(name: str, entry: Mapping[str, Any]) -> Asked:
    attack = entry.get("attack")
    slug = name.removeprefix(entry["dataset"].replace("/", "_") + "-").rpartition("-")[0]
    ball = _ball(attack) if attack else {}
    eps = Fraction(ball["eps"]) if ball else None
    if not 0 < entry["examples"] <= _MOST:
        raise ValueError(f"{entry['examples']} images")
    own = (name, entry["dataset"], entry["examples"], slug, ball.get("norm"), eps)
    return Asked(*own, entry.get("seed", 0), entry.get("heat"))


def _ball(attack: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = attack.get("components") or attack.get("attacks")
    return attack["ball"] if "ball" in attack else _ball(inner[0]) if inner else {}


def numbers(evaluation: Evaluation) -> list[Number]:
    """Natural accuracy, each attack's, and AutoAttack's, per data set and ball; corruptions apart."""
    found: dict[tuple[Any, ...], np.ndarray] = {}
    for name, asked in evaluation.probes.items():
        if "/" not in asked.dataset and name in evaluation.records:
            own = (asked.dataset, asked.attack, asked.norm, asked.eps)
            found.setdefault(own, evaluation.records[name].correct)
    for dataset, norm, eps in dict.fromkeys((key[0], key[2], key[3]) for key in found if key[2]):
        aa = (dataset, f"aa_{norm}", norm, eps)
        parts = [(dataset, f"{one.replace('-', '_')}_{norm}", norm, eps) for one in STANDARD]
        if aa not in found and all(part in found for part in parts):
            found[aa] = np.logical_and.reduce([found[part] for part in parts])
    return [_number(key, flags) for key, flags in found.items()]


def _number(key: tuple[Any, ...], flags: np.ndarray) -> Number:
    share, n = float(flags.mean()), len(flags)
    low, high = wilson(float(flags.sum()), n)
    dataset, attack, norm, eps = key
    percent = [round(100 * value, 2) for value in (share, low, high)]
    return Number(dataset, attack, norm, eps, percent[0], percent[1], percent[2], n, flags)
