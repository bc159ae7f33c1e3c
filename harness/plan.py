"""grid.yaml + a scale -> the runs, and which run and record every cell of every artefact needs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from harness.attacks import PGD, Staged
from harness.autoattack import COMPONENTS, STANDARD, Cascade, Component
from harness.balls import Ball
from harness.build import DEFAULT_PRESET, Builder, fraction, registry
from harness.config import merged, read_grid, read_scale
from harness.data import frames
from harness.data.corruptions import MAIN
from harness.data.corruptions.sequences import FRAMES
from harness.errors import run_command, unknown
from harness.runs import Augment, EvalRun, Probe, Recipe, Selection, TrainRun

PROTOCOLS = ("as_named", "released")
_FORWARD_BATCHES = 10  # a mere forward pass takes so many attack batches at once


@dataclass(frozen=True)
class Formula:
    """A number as a reduction of records.

    One `probe`; `all` of the parts at once; their `mean`. For a probe that is a sequence of frames per
    image: its mean over `frames`, or the share of `flips` of the prediction between frames.
    """

    op: str
    parts: tuple[Any, ...]  # the probe's id, or formulas
    sequence: str | None = None  # for `frames` and `flips`: the name of the data set

    @property
    def probes(self) -> list[str]:
        if isinstance(self.parts[0], str):
            return list(self.parts)
        return [probe for part in self.parts for probe in part.probes]


@dataclass(frozen=True)
class Cell:
    """One number of a table: the papers' names, and where ours comes from (a run per seed)."""

    method: str
    dataset: str
    network: str
    column: str
    runs: tuple[str, ...]
    formula: Formula


@dataclass(frozen=True)
class Artefact:
    name: str
    kind: str
    title: str
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    protocol: str
    published: str  # the artefact of the papers whose numbers stand beside ours

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(run for cell in self.cells for run in cell.runs))


class Plan:
    """A grid resolved at one scale. Building it is cheap and imports no torch."""

    def __init__(self, grid: Mapping[str, Any], scale: Mapping[str, Any], name: str) -> None:
        self.grid, self.scale, self.name = grid, scale, name
        self.runs: dict[str, TrainRun] = {}
        self._probes: dict[str, dict[str, Probe]] = {}  # run -> its probes
        self._formulas: dict[Any, tuple[Formula, list[Probe]]] = {}
        self._methods = registry(grid["registry"])
        self._wanted = self._columns_wanted()
        self.artefacts = {
            name: self._artefact(name, entry) for name, entry in grid["artefacts"].items()
        }

    @classmethod
    def read(cls, scale: str, grid: Path | None = None) -> Plan:
        return cls(read_grid(grid), read_scale(scale), scale)

    @cached_property
    def evaluations(self) -> dict[str, EvalRun]:
        """Run id -> all that any artefact of this scale asks of that model."""
        return {
            run: EvalRun(run, tuple(probes[key] for key in sorted(probes)))
            for run, probes in self._probes.items()
        }

    def artefact(self, name: str) -> Artefact:
        if name not in self.artefacts:
            raise unknown("artefact", name, self.artefacts, "config/grid.yaml")
        return self.artefacts[name]

    @property
    def data_sets(self) -> list[str]:
        """What must be there before anything starts; corrupted sets as `<base>-c`, `<base>-p`."""
        probed = [probe.dataset for run in self.evaluations.values() for probe in run.probes]
        trained = [run.dataset for run in self.runs.values()]
        return sorted({name.partition("/")[0] for name in trained + probed})

    def run(self, run_id: str) -> TrainRun:
        if run_id not in self.runs:
            raise unknown("run", run_id, self.runs, f"scale {self.name}")
        return self.runs[run_id]

    def label(self, slug: str) -> str:
        """How a row is called: the method's label and, for `slug@preset`, the preset's."""
        slug, _, preset = slug.partition("@")
        label = self.grid["labels"].get(slug, slug)
        return f"{label}, {self.grid['presets'][preset]['label']}" if preset else label

    def dataset(self, name: str) -> str:
        return self._named("datasets", name)

    def network(self, name: str) -> str:
        return self._named("networks", name)

    def _named(self, section: str, name: str) -> str:
        """The scale's stand-in for a name of the papers."""
        known = self.grid[section]
        for candidate in (name, self.scale[section].get(name, name)):
            if candidate not in known:
                raise unknown(
                    section.rstrip("s"), candidate, known, f"config/grid.yaml's {section}"
                )
        return candidate

    def _builder(self, dataset: str, network: str) -> Builder:
        return Builder(
            methods=self._methods,
            entries=self.grid["methods"],
            threats=self.grid["datasets"][dataset]["threats"],
            optims=self.grid["networks"][network],
            presets=self.grid["presets"],
            overlay=self.scale["methods"],
        )

    def train_run(self, slug: str, dataset: str, network: str, seed: int) -> TrainRun:
        """The run that trains a grid's method; its parents are planned along with it."""
        dataset, network = self.dataset(dataset), self.network(network)
        builder = self._builder(dataset, network)
        method = builder.method(slug)
        entry = builder.entry(slug)
        preset = self.grid["presets"][entry.get("preset", DEFAULT_PRESET)]
        own = preset.get("recipes", {}).get(entry["method"], {})
        recipe = merged(merged(self.grid["recipe"], own), self.scale["recipe"])
        augment = merged(self.grid["datasets"][dataset]["augment"], recipe.pop("augment", {}))
        parents = [
            self.train_run(parent, dataset, network, seed).id for parent in builder.parents(slug)
        ]
        run = TrainRun(
            dataset=dataset,
            network=network,
            method=method,
            recipe=Recipe(augment=Augment(**augment), **recipe),
            selection=self._selection(preset, dataset),
            seed=seed,
            parents=tuple(parents),
        )
        return self.runs.setdefault(run.id, run)

    def _selection(self, preset: Mapping[str, Any], dataset: str) -> Selection:
        entry = merged(self.scale["selection"], preset.get("selection", {}))
        attack = None if entry["use"] == "last" else self._test_pgd(dataset, "linf", 20)
        return Selection(attack=attack, **entry)

    def _test_pgd(self, dataset: str, threat: str, steps: int) -> PGD:
        threats = self.grid["datasets"][dataset]["threats"]
        if threat not in threats:
            raise unknown("threat", threat, threats, f"data set {dataset}")
        entry = threats[threat]
        ball = Ball(entry["norm"], fraction(entry["eps"], f"{dataset}'s {threat}"))
        return PGD(ball, fraction(entry["test_step"], f"{dataset}'s {threat}"), steps)

    def _columns_wanted(self) -> dict[tuple[str, str, str, str], set[str]]:
        """(method, data set, network, protocol) -> every column that some artefact wants of it."""
        wanted: dict[tuple[str, str, str, str], set[str]] = {}
        for entry in self.grid["artefacts"].values():
            protocol = entry.get("protocol", PROTOCOLS[0])
            for rows in product(entry["methods"], entry["datasets"], entry["networks"]):
                wanted.setdefault((*rows, protocol), set()).update(entry["columns"])
        return wanted

    def column(self, name: str, protocol: str = PROTOCOLS[0]) -> dict[str, Any]:
        if name not in self.grid["columns"]:
            raise unknown("column", name, self.grid["columns"], "config/grid.yaml")
        entry = dict(self.grid["columns"][name])
        own = {key: entry.pop(key, {}) for key in PROTOCOLS}[protocol]
        return merged(entry, own)

    def lower_is_better(self, column: str) -> bool:
        return bool(self.column(column).get("flips"))

    def affords(self, column: str, dataset: str, protocol: str) -> bool:
        """Does the data set have the threat that a column needs?"""
        threat = self.column(column, protocol).get("threat")
        return threat is None or threat in self.grid["datasets"][self.dataset(dataset)]["threats"]

    def probe(self, column: str, dataset: str, protocol: str = PROTOCOLS[0]) -> Probe:
        """The record behind a column that is an attack."""
        dataset, entry = self.dataset(dataset), self.column(column, protocol)
        return Probe(dataset, attack=self._attack(entry, dataset), **self.scale["test"])

    def _attack(self, entry: Mapping[str, Any], dataset: str) -> Staged | None:
        kind = entry["attack"]
        if kind == "none":
            return None
        if kind in COMPONENTS or kind == "aa":
            ball = self._test_pgd(dataset, entry["threat"], 1).ball
            budget = self.scale["autoattack"]
            return (
                Cascade.standard(ball, **budget)
                if kind == "aa"
                else Component(ball, kind, **budget)
            )
        attack = self._test_pgd(dataset, entry["threat"], entry["steps"])
        changes: dict[str, dict[str, Any]] = {"mim": {"momentum": 1.0}, "cw": {"loss": "margin"}}
        return replace(attack, **changes.get(kind, {}))

    def formula(
        self, column: str, dataset: str, wanted: set[str], protocol: str
    ) -> tuple[Formula, list[Probe]]:
        """How a column is computed from records, and the records.

        AutoAttack is what survives all its components. Where these are wanted anyway, it costs
        nothing more; where it is wanted alone, the cascade spares them the broken examples.
        """
        entry = self.column(column, protocol)
        for op in ("all", "mean"):
            if op in entry:
                return self._joined(op, entry[op], dataset, wanted, protocol)
        if "corrupted" in entry:
            return self._corrupted(entry, dataset)
        if entry["attack"] == "aa":
            components = [
                name
                for part in STANDARD
                for name in sorted(wanted)
                if self._same(self.column(name, protocol), {**entry, "attack": part})
            ]
            if len(components) == len(STANDARD):
                return self._joined("all", components, dataset, wanted, protocol)
        probe = self.probe(column, dataset, protocol)
        return Formula("probe", (probe.id,)), [probe]

    def _corrupted(self, entry: Mapping[str, Any], dataset: str) -> tuple[Formula, list[Probe]]:
        """A mean over corrupted versions of the test images, or over sequences of them."""
        base, kind = self.dataset(dataset), entry["corrupted"]
        test, parts, probes = self.scale["test"], [], []
        if kind == "c":
            pairs = product(MAIN, entry["severities"])
            names = [f"{base}-c/{corruption}/{severity}" for corruption, severity in pairs]
        else:
            names = [f"{base}-p/{sequence}" for sequence in FRAMES]
        for name in names:
            examples = test["examples"] * frames(name)
            probe = Probe(name, examples, None, test["batch_size"] * _FORWARD_BATCHES)
            probes.append(probe)
            op = "probe" if kind == "c" else "flips" if entry.get("flips") else "frames"
            parts.append(Formula(op, (probe.id,), None if kind == "c" else name))
        return Formula("mean", tuple(parts)), probes

    @staticmethod
    def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        return all(one.get(key) == other.get(key) for key in ("attack", "threat"))

    def _joined(
        self, op: str, columns: list[str], dataset: str, wanted: set[str], protocol: str
    ) -> tuple[Formula, list[Probe]]:
        parts = [self.formula(part, dataset, wanted, protocol) for part in columns]
        probes = [probe for _, own in parts for probe in own]
        return Formula(op, tuple(formula for formula, _ in parts)), probes

    def _artefact(self, name: str, entry: Mapping[str, Any]) -> Artefact:
        cells, protocol = [], entry.get("protocol", PROTOCOLS[0])
        for dataset, network, method in product(
            entry["datasets"], entry["networks"], entry["methods"]
        ):
            seeds = self.scale["seeds"][: entry.get("seeds", 1)]
            runs = [self.train_run(method, dataset, network, seed) for seed in seeds]
            wanted = self._wanted[method, dataset, network, protocol]
            for column in entry["columns"]:
                key = (column, dataset, frozenset(wanted), protocol)
                if key not in self._formulas:
                    self._formulas[key] = self.formula(column, dataset, wanted, protocol)
                formula, probes = self._formulas[key]
                for run in runs:
                    own = self._probes.setdefault(run.id, {})
                    own.update({probe.id: probe for probe in probes})
                ids = tuple(run.id for run in runs)
                cells.append(Cell(method, dataset, network, column, ids, formula))
        return Artefact(
            name,
            entry["kind"],
            entry["title"],
            tuple(entry["columns"]),
            tuple(cells),
            protocol,
            entry.get("published", name),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="List the runs of a scale.")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--grid", type=Path)
    options = parser.parse_args()
    plan = Plan.read(options.scale, options.grid)
    for run in plan.runs.values():
        wanted = plan.evaluations.get(run.id)
        print(f"{run.id}  {len(wanted.probes) if wanted else 0} records")
    print(f"{len(plan.runs)} models, {len(plan.artefacts)} artefacts at scale {plan.name}")


if __name__ == "__main__":
    run_command(main)
