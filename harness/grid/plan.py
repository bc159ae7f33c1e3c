"""grid.yaml + a scale -> the runs, and which run and record every cell of every artefact needs."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

from harness.core.config import fitting, merged, read_grid, read_scale
from harness.core.errors import expected
from harness.core.files import one_line
from harness.grid.artefacts import (
    KINDS,
    VARIANT,
    Artefact,
    Cell,
    Panel,
    Row,
    check,
    only,
    rows_of,
    seed_count,
    variants,
)
from harness.grid.build import SINGLE, Config, look_up, registry
from harness.grid.columns import PROTOCOLS, Columns, EvalRun, Formula, Probe
from harness.grid.specs import Trainings, standard, write_spec
from harness.grid.trunks import Trunks
from harness.training.runs import TrainRun, indivisible


class Plan(Trainings):
    """A grid resolved at one scale: trainings, evaluations, artefacts. Imports no torch."""

    def __init__(self, grid: Config, scale: Config, name: str) -> None:
        super().__init__(grid, scale)
        self.name = name
        self._probes: dict[str, dict[str, Probe]] = defaultdict(dict)  # run -> its probes
        self._columns, self._attacks = cache(self.columns_of), cache(Columns.attacks)
        self._resolved = cache(Columns.resolved)
        self._check_names()
        self.check_places()
        self.artefacts: dict[str, Artefact] = {}
        added = grid["methods"].keys() - standard()["methods"] if "extends" in grid else set()
        for key, entry in grid["artefacts"].items():
            if key in scale.get("left_out", {}):
                continue
            if key in scale.get("artefacts", {}):
                entry = merged(entry, scale["artefacts"][key])
                fitting({key: entry}, "grid", f"the grid at scale {name}", "#/properties/artefacts")
            entry = only(entry, scale["rows"], added) if "rows" in scale else entry
            self.artefacts[key] = self._artefact(key, entry)
            check(self.artefacts[key], entry, self._built)
        self.build_unused()
        self._check_roles()

    @classmethod
    def read(cls, scale: str, grid: Path | None = None) -> Plan:
        return cls(read_grid(grid), read_scale(scale), scale)

    def _check_names(self) -> None:
        """A scale's names are the grid's or config/grid.yaml's: it also plans grids that have less."""
        scale, where = self.scale, f"scale {self.name}"
        rows = [row.partition("@") for row in scale.get("rows", ())]
        sets, networks, test = scale["datasets"], scale["networks"], scale["test"]
        names = {
            "datasets": [*sets, *sets.values(), *test.get("examples_of", ())],
            "networks": [*networks, *networks.values(), *test.get("batch_size_of", ())],
            "methods": [slug for slug, _, _ in rows],
            "presets": [*scale.get("presets", ()), *(preset for _, at, preset in rows if at)],
            "artefacts": [*scale.get("artefacts", ()), *scale.get("left_out", ())],
        }
        for section, wanted in names.items():
            for name in wanted:
                if name not in self.grid[section]:
                    known = {**standard()[section], **self.grid[section]}
                    look_up(section.rstrip("s"), name, known, where)
        for slug, entry in self.grid["methods"].items():
            self._check_class(entry["method"], f"methods.{slug}")
        for name in scale["methods"]:
            self._check_class(name, f"{where}'s methods", SINGLE)
        for preset, entry in self.presets.items():
            for name in entry:
                self._check_class(name, f"presets.{preset}", SINGLE, "label", "selection", "recipes")
            for name in entry.get("recipes", ()):
                self._check_class(name, f"presets.{preset}.recipes")
        for name in self.grid["labels"]:
            look_up("method", name, self.grid["methods"], "config/grid.yaml's labels")

    def _check_class(self, name: Any, where: str, *known: str) -> None:
        if not isinstance(name, str) or name not in (*self._methods, *known):
            look_up("method class", name, {**self.classes, **dict.fromkeys(known)}, where)

    @property
    def classes(self) -> Mapping[str, Any]:
        """The methods' classes, and those of config/grid.yaml: a user's registry may have less."""
        return {**registry(standard()["registry"]), **self._methods}

    def _check_roles(self) -> None:
        ours, undefended = self.grid["roles"]["ours"], self.grid["roles"]["undefended"]
        slugs = [method.slug for method in self._built.values()]
        if not any(name.startswith(ours) for name in self.grid["methods"]):
            look_up("method", ours, self.grid["methods"], "roles.ours")
        if undefended not in slugs:
            look_up("method", undefended, dict.fromkeys(slugs), "roles.undefended")

    @cached_property
    def evaluations(self) -> dict[str, EvalRun]:
        """Run id -> all that any artefact of this scale asks of that model."""
        return {
            run: EvalRun(run, tuple(probes[key] for key in sorted(probes)))
            for run, probes in self._probes.items()
        }

    def columns_of(self, network: str) -> Columns:
        """The columns for a network, which may need smaller batches than others."""
        test = self.scale["test"]
        if network not in test.get("batch_size_of", {}):
            return self.columns
        test = {**test, "batch_size": test["batch_size_of"][network]}
        return Columns(self.grid, {**self.scale, "test": test})

    @property
    def jobs(self) -> int:
        """How many jobs share a model's evaluation; what they find does not depend on it."""
        return self.scale["test"].get("jobs", 1)

    def artefact(self, name: str) -> Artefact:
        return look_up("artefact", name, self.artefacts, "config/grid.yaml")

    def rows_of(self, name: str) -> list[str]:
        """The methods that an artefact has in the grid or here; a scale may leave out some, or all."""
        planned = self.artefacts[name].panels if name in self.artefacts else ()
        here = [method for panel in planned for method in panel.methods]
        return list(dict.fromkeys([*rows_of(self.grid, self.grid["artefacts"].get(name, {})), *here]))

    @property
    def data_sets(self) -> list[str]:
        """What must be there before anything starts; corrupted sets as `<base>-c`, `<base>-p`."""
        probed = [probe.dataset for run in self.evaluations.values() for probe in run.probes]
        trained = [run.dataset for run in self.runs.values()]
        return sorted({name.partition("/")[0] for name in trained + probed})

    def run(self, run_id: str) -> TrainRun:
        known = self.runs if run_id in self.runs else {**self.runs, **self.trunks.owners}
        return look_up("run", run_id, known, f"scale {self.name}")

    @cached_property
    def trunks(self) -> Trunks:
        return Trunks(self.runs, self.artefacts.values())

    def data_parallel(self, run_id: str) -> int:
        """How many processes share the batches of a run, if it can be shared. No part of its id."""
        run = self.run(run_id)
        wanted: int = self.grid["datasets"][run.dataset].get("data_parallel", 1)
        return 1 if indivisible(run) else wanted

    def training_spec(self, run: str, end: int | None = None) -> str:
        return write_spec(self.trunks.stretch(self.run(run), end))

    def evaluation_spec(self, run: str) -> str:
        if run not in self.evaluations:
            found = f"{self.run(run).id}, which is only a parent"
            raise expected("a run that a table evaluates", found, "choose another")
        return write_spec(self.evaluations[run])

    def label(self, slug: str) -> str:
        """How a row is called: the method's label, or a variant's; for `slug@preset` both."""
        if VARIANT in slug:
            return one_line(", ".join(slug.split(VARIANT)[1:]))
        slug, _, preset = slug.partition("@")
        label = self.grid["labels"].get(slug, slug)
        return one_line(f"{label}, {self.presets[preset]['label']}" if preset else label)

    def _rows(self, entry: Config, panels: list[Panel]) -> list[Row]:
        rows, methods = [], [method for panel in panels for method in panel.methods]
        for dataset, network, method in product(entry["datasets"], entry["networks"], methods):
            seeds = self.scale["seeds"][: seed_count(entry, dataset)]
            runs = [self.train_run(method, dataset, network, seed, entry).id for seed in seeds]
            rows.append(Row(method, dataset, network, tuple(runs)))
        return rows

    def _panels(self, entry: Config) -> list[Panel]:
        """One for each variation; the methods that are listed plainly lead the first."""
        plain = tuple(entry.get("methods", ()))
        panels: list[Panel] = []
        for variation in entry.get("vary", ()):
            found = variants(self.grid, variation)
            for slug in (slug for panel in panels for slug in panel.methods if slug in found):
                raise expected("labels that differ between two variations", slug, "rename a label")
            self.entries.update(found)
            panels.append(Panel(tuple(variation["over"]), tuple(found)))
        first, *others = panels or [Panel((), ())]
        return [replace(first, methods=plain + first.methods), *others]

    def _artefact(self, name: str, entry: Config) -> Artefact:
        look_up("kind", entry["kind"], KINDS, f"artefacts.{name}.kind")
        panels = self._panels(entry)
        rows, cells = self._rows(entry, panels), []
        protocol, columns = entry.get("protocol", PROTOCOLS[0]), tuple(entry.get("columns", ()))
        autoattack = entry.get("autoattack") or self.columns.autoattack(columns, protocol)
        for row, column in product(rows, columns):
            own, dataset = self._columns(self.network(row.network)), self.dataset(row.dataset)
            meaning = self._resolved(own, column, dataset, protocol, autoattack)
            if entry["kind"] == "heatmaps" and meaning.formula.op == "probe":  # with Grad-CAM maps
                (probe,) = (replace(probe, heat=True) for probe in meaning.probes)
                meaning = replace(meaning, formula=Formula("probe", (probe.id,)), probes=(probe,))
            for run in row.runs:
                self._probes[run].update({probe.id: probe for probe in meaning.probes})
            cells.append(Cell(row.method, row.dataset, row.network, row.runs, meaning))
        models = {(self.dataset(row.dataset), self.network(row.network)) for row in rows if columns}
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
            {
                (dataset, network): self._attacks(self._columns(network), dataset, protocol, autoattack)
                for dataset, network in sorted(models)
            },
            tuple(panels),
            entry.get("show", {}),
            entry.get("published_rows", {}),
        )


def reported(parser: argparse.ArgumentParser, folder: str = "") -> tuple[Plan, argparse.Namespace]:
    """The words that every command of a report shares, and the plan that they ask for."""
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--reports", type=Path, default=Path("reports"))
    options = parser.parse_args()
    plan = Plan.read(options.scale, options.grid)
    if folder and (own := plan.artefact(options.artefact).folder) != folder:
        remedy = f"say generalist-bench {own} --artefact {options.artefact}"
        raise expected(f"one of the {folder}", f"one of the {own}", remedy)
    return plan, options
