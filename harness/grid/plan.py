"""grid.yaml + a scale -> the runs, and which run and record every cell of every artefact needs."""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path

from harness.core.config import merged, read_grid, read_scale
from harness.core.errors import expected, unknown
from harness.grid.artefacts import VARIANT, Artefact, Cell, Panel, Row, only, seed_count, variants
from harness.grid.build import Config, look_up
from harness.grid.columns import PROTOCOLS, Columns, EvalRun, Formula, Probe
from harness.grid.specs import Trainings, write_spec
from harness.training.runs import TrainRun, indivisible


class Plan(Trainings):
    """A grid resolved at one scale: trainings, evaluations, artefacts. Imports no torch."""

    def __init__(self, grid: Config, scale: Config, name: str) -> None:
        super().__init__(grid, scale)
        self.name = name
        self._probes: dict[str, dict[str, Probe]] = defaultdict(dict)  # run -> its probes
        self._columns, self._resolved = cache(self.columns.of), cache(Columns.resolved)
        self._attacks = cache(Columns.attacks)
        for row in scale.get("rows", ()):
            if row.partition("@")[0] not in grid["methods"]:
                raise unknown("method", row, grid["methods"], f"the rows of scale {name}")
        self.artefacts: dict[str, Artefact] = {}
        added = grid["methods"].keys() - read_grid()["methods"] if "extends" in grid else set()
        for key, entry in merged(grid["artefacts"], scale.get("artefacts", {})).items():
            # Without a kind: a scale may change an artefact that another grid does not have.
            if "kind" in entry and key not in scale.get("left_out", {}):
                entry = only(entry, scale["rows"], added) if "rows" in scale else entry
                self.artefacts[key] = self._artefact(key, entry)

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
        return look_up("artefact", name, self.artefacts, "config/grid.yaml")

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
        return look_up("run", run_id, self.runs, f"scale {self.name}")

    def data_parallel(self, run_id: str) -> int:
        """How many processes share the batches of a run, if it can be shared. No part of its id."""
        run = self.run(run_id)
        wanted: int = self.grid["datasets"][run.dataset].get("data_parallel", 1)
        return 1 if indivisible(run) else wanted

    def training_spec(self, run: str) -> str:
        return write_spec(self.run(run))

    def evaluation_spec(self, run: str) -> str:
        if run not in self.evaluations:
            found = f"{self.run(run).id}, which is only a parent"
            raise expected("a run that a table evaluates", found, "choose another")
        return write_spec(self.evaluations[run])

    def label(self, slug: str) -> str:
        """How a row is called: the method's label, or a variant's; for `slug@preset` both."""
        if VARIANT in slug:
            return ", ".join(slug.split(VARIANT)[1:])
        slug, _, preset = slug.partition("@")
        label = self.grid["labels"].get(slug, slug)
        return f"{label}, {self.presets[preset]['label']}" if preset else label

    def _rows(self, entry: Config, panels: list[Panel]) -> list[Row]:
        rows, methods = [], [method for panel in panels for method in panel.methods]
        for dataset, network, method in product(entry["datasets"], entry["networks"], methods):
            seeds = self.scale["seeds"][: seed_count(entry, dataset)]
            runs = [self.train_run(method, dataset, network, seed, entry).id for seed in seeds]
            rows.append(Row(method, dataset, network, tuple(runs)))
        return rows

    def _panels(self, entry: Config) -> list[Panel]:
        """One for each variation; the methods that are listed plainly lead the first."""
        plain, panels = tuple(entry.get("methods", ())), []
        for variation in entry.get("vary", ()):
            found = variants(self.grid, variation)
            self.entries.update(found)
            panels.append(Panel(tuple(variation["over"]), tuple(found)))
        first, *others = panels or [Panel((), ())]
        return [replace(first, methods=plain + first.methods), *others]

    def _artefact(self, name: str, entry: Config) -> Artefact:
        panels = self._panels(entry)
        rows, cells = self._rows(entry, panels), []
        protocol, columns = entry.get("protocol", PROTOCOLS[0]), tuple(entry.get("columns", ()))
        autoattack = entry.get("autoattack") or self.columns.autoattack(columns, protocol)
        for row, column in product(rows, columns):
            own, dataset = self._columns(self.network(row.network)), self.dataset(row.dataset)
            meaning = self._resolved(own, column, dataset, protocol, autoattack)
            if entry["kind"] == "heatmaps":  # the same probe, with Grad-CAM maps
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
        remedy = f"say python -m harness {own} --artefact {options.artefact}"
        raise expected(f"one of the {folder}", f"one of the {own}", remedy)
    return plan, options
