"""grid.yaml + a scale -> the runs, and which run and record every cell of every artefact needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property, reduce
from itertools import product
from pathlib import Path
from typing import Any

from harness.core.config import merged, read_grid, read_scale
from harness.core.errors import unknown
from harness.grid.artefacts import VARIANT, Artefact, Cell, Panel, Row, only, seed_count
from harness.grid.build import DEFAULT_PRESET, Builder, fraction, registry
from harness.grid.columns import PROTOCOLS, Columns, Formula
from harness.grid.probes import EvalRun, Probe
from harness.grid.variants import variants
from harness.training.contracts import Method
from harness.training.runs import Augment, Recipe, Selection, TrainRun, Watch, trained_norms

# What an artefact's entry may change in the training of its methods.
_OF_ARTEFACT = ("watch", "recipe", "threats")


class Plan:
    """A grid resolved at one scale. Building it is cheap and imports no torch."""

    def __init__(self, grid: Mapping[str, Any], scale: Mapping[str, Any], name: str) -> None:
        self.grid, self.scale, self.name = grid, scale, name
        self.runs: dict[str, TrainRun] = {}
        self._trained: dict[tuple, TrainRun] = {}  # by the names that ask for it
        self._probes: dict[str, dict[str, Probe]] = {}  # run -> its probes
        self._formulas: dict[Any, tuple[Formula, list[Probe]]] = {}
        self._entries = dict(grid["methods"])  # and the variants of them that artefacts ask for
        self.columns = Columns(grid, scale)
        self._presets = merged(grid["presets"], scale.get("presets", {}))
        self._methods = registry(grid["registry"])
        entries = merged(grid["artefacts"], scale.get("artefacts", {}))
        # A scale may change an artefact that another grid does not have.
        entries = {key: entry for key, entry in entries.items() if "kind" in entry}
        for unbuilt in scale.get("left_out", {}):
            entries = {key: entry for key, entry in entries.items() if key != unbuilt}
        if "rows" in scale:
            for row in scale["rows"]:
                if row.partition("@")[0] not in grid["methods"]:
                    raise unknown("method", row, grid["methods"], f"the rows of scale {name}")
            entries = {key: only(entry, scale["rows"]) for key, entry in entries.items()}
        self.artefacts = {
            name: self._artefact(name, entry, self._rows(entry)) for name, entry in entries.items()
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

    @property
    def jobs(self) -> int:
        """How many jobs share a model's evaluation; what they find does not depend on it."""
        return self.scale["test"].get("jobs", 1)

    def artefact(self, name: str) -> Artefact:
        if name not in self.artefacts:
            raise unknown("artefact", name, self.artefacts, "config/grid.yaml")
        return self.artefacts[name]

    def rows_of(self, name: str) -> list[str]:
        """The methods that an artefact has in the grid or here; a scale may leave out some, or all."""
        planned = self.artefacts[name].panels if name in self.artefacts else ()
        panels = [*self._panels(self.grid["artefacts"].get(name, {})), *planned]
        return list(dict.fromkeys(method for panel in panels for method in panel.methods))

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
        """How a row is called: the method's label, or a variant's; for `slug@preset` both."""
        if VARIANT in slug:
            return ", ".join(slug.split(VARIANT)[1:])
        slug, _, preset = slug.partition("@")
        label = self.grid["labels"].get(slug, slug)
        return f"{label}, {self._presets[preset]['label']}" if preset else label

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

    def _builder(self, dataset: str, network: str, instead: Mapping[str, str]) -> Builder:
        threats = self.grid["datasets"][dataset]["threats"]
        for name in [*instead, *instead.values()]:
            if name not in threats:
                raise unknown("threat", name, threats, f"data set {dataset}")
        return Builder(
            methods=self._methods,
            entries=self._entries,
            threats={**threats, **{name: threats[other] for name, other in instead.items()}},
            optims=self.grid["networks"][network],
            presets=self._presets,
            overlay=self.scale["methods"],
        )

    def train_run(
        self,
        slug: str,
        dataset: str,
        network: str,
        seed: int,
        artefact: Mapping[str, Any] | None = None,
    ) -> TrainRun:
        """The run that trains a grid's method; its parents are planned along with it.

        `artefact` is the entry that asks for it. Two tables may train one method in two ways: then it
        is two runs.
        """
        dataset, network = self.dataset(dataset), self.network(network)
        own = {key: artefact[key] for key in _OF_ARTEFACT if artefact and key in artefact}
        key = (slug, dataset, network, seed, json.dumps(own, sort_keys=True))
        if key not in self._trained:
            self._trained[key] = self._train_run(slug, dataset, network, seed, own)
        return self._trained[key]

    def _watch(self, dataset: str, entry: Mapping[str, Any]) -> Watch:
        moments = tuple(fraction(moment, "a watch's moments") for moment in entry["moments"])
        return Watch(self.columns.pgd(dataset, "linf", 20), entry["examples"], moments)

    def _train_run(
        self, slug: str, dataset: str, network: str, seed: int, artefact: Mapping[str, Any]
    ) -> TrainRun:
        builder = self._builder(dataset, network, artefact.get("threats", {}))
        method = builder.method(slug)
        entry = builder.entry(slug)
        preset = self._presets[entry.get("preset", DEFAULT_PRESET)]
        own = preset.get("recipes", {}).get(entry["method"], {})
        of_set = self.grid["datasets"][dataset].get("recipe", {})
        of_artefact, of_scale = artefact.get("recipe", {}), self.scale["recipe"]
        recipe = reduce(merged, [self.grid["recipe"], of_set, of_artefact, own, of_scale])
        augment = merged(self.grid["datasets"][dataset]["augment"], recipe.pop("augment", {}))
        watch = artefact.get("watch")
        inherited = {key: value for key, value in artefact.items() if key != "watch"}
        parents = [
            self.train_run(parent, dataset, network, seed, inherited).id
            for parent in builder.parents(slug)
        ]
        run = TrainRun(
            dataset=dataset,
            network=network,
            method=method,
            recipe=Recipe(augment=Augment(**augment), **recipe),
            selection=self._selection(preset, dataset, method),
            seed=seed,
            parents=tuple(parents),
            watch=self._watch(dataset, watch) if watch else None,
        )
        return self.runs.setdefault(run.id, run)

    def _selection(self, preset: Mapping[str, Any], dataset: str, method: Method) -> Selection:
        """An epoch is judged in the norms that its method trains against: threats go by their names."""
        entry = merged(self.scale["selection"], preset.get("selection", {}))
        if entry["use"] == "last":
            return Selection(**entry)
        attacks = [self.columns.pgd(dataset, norm, 20) for norm in trained_norms(method)]
        attack = attacks[0] if len(attacks) == 1 else tuple(attacks) or None
        return Selection(attack=attack, **entry)

    def _rows(self, entry: Mapping[str, Any]) -> list[Row]:
        return [
            Row(
                method,
                dataset,
                network,
                tuple(
                    self.train_run(method, dataset, network, seed, entry).id
                    for seed in self.scale["seeds"][: seed_count(entry, dataset)]
                ),
            )
            for dataset, network in product(entry["datasets"], entry["networks"])
            for panel in self._panels(entry)
            for method in panel.methods
        ]

    def _panels(self, entry: Mapping[str, Any]) -> list[Panel]:
        """One for each variation; the methods that are listed plainly lead the first."""
        plain, panels = tuple(entry.get("methods", ())), []
        for variation in entry.get("vary", ()):
            found = variants(self.grid, variation)
            self._entries.update(found)
            panels.append(Panel(tuple(variation["over"]), tuple(found)))
        first, *others = panels or [Panel((), ())]
        return [replace(first, methods=plain + first.methods), *others]

    def _artefact(self, name: str, entry: Mapping[str, Any], rows: list[Row]) -> Artefact:
        protocol, columns = entry.get("protocol", PROTOCOLS[0]), tuple(entry.get("columns", ()))
        autoattack = entry.get("autoattack") or self.columns.autoattack(columns, protocol)
        cells = []
        for row in rows:
            for column in columns:
                formula, probes = self._formula(
                    column,
                    self.dataset(row.dataset),
                    protocol,
                    autoattack,
                    entry["kind"] == "heatmaps",
                )
                for run in row.runs:
                    own = self._probes.setdefault(run, {})
                    own.update({probe.id: probe for probe in probes})
                cells.append(Cell(row.method, row.dataset, row.network, row.runs, column, formula))
        return Artefact(
            name,
            entry["kind"],
            entry["title"],
            entry.get("caption", ""),
            protocol,
            autoattack,
            entry.get("published", name),
            columns,
            tuple(rows),
            tuple(cells),
            tuple(self._panels(entry)),
            entry.get("show", {}),
            entry.get("published_rows", {}),
        )

    def _formula(
        self, column: str, dataset: str, protocol: str, autoattack: str | None, heat: bool
    ) -> tuple[Formula, list[Probe]]:
        key = (column, dataset, protocol, autoattack, heat)
        if key not in self._formulas:
            formula, probes = self.columns.formula(column, dataset, protocol, autoattack)
            if heat:  # the same probe, and where the network looks
                probes = [replace(probe, heat=True) for probe in probes]
                formula = Formula("probe", (probes[0].id,))
            self._formulas[key] = formula, probes
        return self._formulas[key]


planned = cache(Plan.read)  # for commands: a zygote plans once for all its jobs


def reported(parser: argparse.ArgumentParser) -> tuple[Plan, argparse.Namespace]:
    """The words that every command of a report shares, and the plan that they ask for."""
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--reports", type=Path, default=Path("reports"))
    options = parser.parse_args()
    return Plan.read(options.scale, options.grid), options
