"""grid.yaml + a scale -> the runs, and which run and record every cell of every artefact needs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from harness.build import DEFAULT_PRESET, Builder, registry
from harness.columns import PROTOCOLS, Columns, Formula
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
        self.columns = Columns(grid, scale)
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
        attack = None if entry["use"] == "last" else self.columns.pgd(dataset, "linf", 20)
        return Selection(attack=attack, **entry)

    def _columns_wanted(self) -> dict[tuple[str, str, str, str], set[str]]:
        """(method, data set, network, protocol) -> every column that some artefact wants of it."""
        wanted: dict[tuple[str, str, str, str], set[str]] = {}
        for entry in self.grid["artefacts"].values():
            protocol = entry.get("protocol", PROTOCOLS[0])
            for rows in product(entry["methods"], entry["datasets"], entry["networks"]):
                wanted.setdefault((*rows, protocol), set()).update(entry["columns"])
        return wanted

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
                    self._formulas[key] = self.columns.formula(
                        column, self.dataset(dataset), wanted, protocol
                    )
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
    parser = argparse.ArgumentParser(
        description="What a scale's runs will cost, or which they are."
    )
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--runs", action="store_true", help="list them instead; no torch needed")
    parser.add_argument(
        "--no-calibration", action="store_true", help="passes only, no hours; no torch needed"
    )
    parser.add_argument("--device", default="auto", help="to calibrate on; default: the best one")
    parser.add_argument(
        "--device-tflops", type=float, metavar="X", help="hours on a device that sustains X TFLOPS"
    )
    options = parser.parse_args()
    plan = Plan.read(options.scale, options.grid)
    if options.runs:
        for run in plan.runs.values():
            wanted = plan.evaluations.get(run.id)
            print(f"{run.id}  {len(wanted.probes) if wanted else 0} records")
        print(f"{len(plan.runs)} models, {len(plan.artefacts)} artefacts at scale {plan.name}")
        return
    from harness import bill

    if options.no_calibration:
        print(bill.text(plan, bill.rows(plan, bill.read_rates(), None), None))
        return
    from harness.meter import calibrated

    rates, prices, device = calibrated(plan, options.device, options.device_tflops)
    print(bill.text(plan, bill.rows(plan, rates, prices), device))


if __name__ == "__main__":
    run_command(main)
