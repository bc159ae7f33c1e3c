"""grid.yaml + a scale -> the runs, and which run and record every cell of every artefact needs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.attacks import PGD
from harness.balls import Ball
from harness.build import DEFAULT_PRESET, Builder, fraction, registry
from harness.config import merged, read_grid, read_scale
from harness.errors import run_command, unknown
from harness.runs import Augment, EvalRun, Probe, Recipe, Selection, TrainRun


@dataclass(frozen=True)
class Cell:
    """One number of a table: the papers' names, and where ours comes from (a run per seed)."""

    method: str
    dataset: str
    network: str
    column: str
    runs: tuple[str, ...]
    probe: str


@dataclass(frozen=True)
class Artefact:
    name: str
    kind: str
    title: str
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(run for cell in self.cells for run in cell.runs))


class Plan:
    """A grid resolved at one scale. Building it is cheap and imports no torch."""

    def __init__(self, grid: Mapping[str, Any], scale: Mapping[str, Any], name: str) -> None:
        self.grid, self.scale, self.name = grid, scale, name
        self.runs: dict[str, TrainRun] = {}
        self._probes: dict[str, dict[str, Probe]] = {}  # run -> its probes
        self._methods = registry(grid["registry"])
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

    def probe(self, column: str, dataset: str) -> Probe:
        dataset = self.dataset(dataset)
        if column not in self.grid["columns"]:
            raise unknown("column", column, self.grid["columns"], "config/grid.yaml")
        entry = self.grid["columns"][column]
        attack = None
        if entry["attack"] == "pgd":
            attack = self._test_pgd(dataset, entry["threat"], entry["steps"])
        return Probe(dataset, attack=attack, **self.scale["test"])

    def _artefact(self, name: str, entry: Mapping[str, Any]) -> Artefact:
        cells = []
        for network in entry["networks"]:
            for method in entry["methods"]:
                runs = [
                    self.train_run(method, entry["dataset"], network, seed)
                    for seed in self.scale["seeds"]
                ]
                for column in entry["columns"]:
                    probe = self.probe(column, entry["dataset"])
                    for run in runs:
                        self._probes.setdefault(run.id, {})[probe.id] = probe
                    ids = tuple(run.id for run in runs)
                    cells.append(Cell(method, entry["dataset"], network, column, ids, probe.id))
        return Artefact(name, entry["kind"], entry["title"], tuple(entry["columns"]), tuple(cells))


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
