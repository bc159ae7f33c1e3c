"""What a job is to do: a training, planned from a method's slug, or an evaluation; as JSON.

The workflow plans; a job gets its spec on the command line and plans nothing.
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import reduce
from typing import Any

from harness.core.config import merged
from harness.core.errors import expected
from harness.core.paths import canonical, restored
from harness.grid.build import DEFAULT_PRESET, Builder, Config, fraction, look_up, registry
from harness.grid.columns import Columns, EvalRun
from harness.training.contracts import Method
from harness.training.runs import Augment, Recipe, Selection, TrainRun, Watch, trained_norms


class Trainings:
    """The runs of a grid at one scale, planned when they are asked for."""

    def __init__(self, grid: Config, scale: Config) -> None:
        self.grid, self.scale, self.columns = grid, scale, Columns(grid, scale)
        self.runs: dict[str, TrainRun] = {}
        self.entries = dict(grid["methods"])  # and the variants that artefacts ask for
        self.presets = merged(grid["presets"], scale.get("presets", {}))
        self._methods = registry(grid["registry"])

    def dataset(self, name: str) -> str:
        return self._named("datasets", name)

    def network(self, name: str) -> str:
        return self._named("networks", name)

    def _named(self, section: str, name: str) -> str:
        """The scale's stand-in for a name of the papers."""
        kind, where = section.rstrip("s"), f"config/grid.yaml's {section}"
        for candidate in (name, self.scale[section].get(name, name)):
            look_up(kind, candidate, self.grid[section], where)
        return candidate

    def _builder(self, dataset: str, network: str, instead: Mapping[str, str]) -> Builder:
        threats = self.grid["datasets"][dataset]["threats"]
        for name in [*instead, *instead.values()]:
            look_up("threat", name, threats, f"data set {dataset}")
        return Builder(
            methods=self._methods,
            entries=self.entries,
            threats={**threats, **{name: threats[other] for name, other in instead.items()}},
            optims=self.grid["networks"][network],
            presets=self.presets,
            overlay=self.scale["methods"],
        )

    def train_run(
        self, slug: str, dataset: str, network: str, seed: int, artefact: Config | None = None
    ) -> TrainRun:
        """The run that trains a grid's method; its parents are planned along with it.

        `artefact` is the entry that asks for it, which may change `watch`, `recipe` and `threats`. Two
        tables may train one method in two ways: then it is two runs.
        """
        artefact, dataset, network = artefact or {}, self.dataset(dataset), self.network(network)
        builder = self._builder(dataset, network, artefact.get("threats", {}))
        entry = builder.entry(slug)
        method = builder.build(entry, f"methods.{slug}")
        preset = self.presets[entry.get("preset", DEFAULT_PRESET)]
        own = preset.get("recipes", {}).get(entry["method"], {})
        of_set = self.grid["datasets"][dataset].get("recipe", {})
        of_artefact, of_scale = artefact.get("recipe", {}), self.scale["recipe"]
        recipe = reduce(merged, [self.grid["recipe"], of_set, of_artefact, own, of_scale])
        augment = merged(self.grid["datasets"][dataset]["augment"], recipe.pop("augment", {}))
        parents = [
            self.train_run(parent, dataset, network, seed, {**artefact, "watch": None}).id
            for parent in entry.get("parents", ())
        ]
        run = TrainRun(
            dataset=dataset,
            network=network,
            method=method,
            recipe=Recipe(augment=Augment(**augment), **recipe),
            selection=self._selection(preset, dataset, method),
            seed=seed,
            parents=tuple(parents),
            watch=self._watch(dataset, artefact.get("watch")),
        )
        return self.runs.setdefault(run.id, run)

    def _watch(self, dataset: str, entry: Config | None) -> Watch | None:
        if not entry:
            return None
        moments = tuple(fraction(moment, "a watch's moments") for moment in entry["moments"])
        return Watch(self.columns.pgd(dataset, "linf", 20), entry["examples"], moments)

    def _selection(self, preset: Config, dataset: str, method: Method) -> Selection:
        """An epoch is judged in the norms that its method trains against: threats go by their names."""
        entry = merged(self.scale["selection"], preset.get("selection", {}))
        if entry["use"] == "last":
            return Selection(**entry)
        attacks = [self.columns.pgd(dataset, norm, 20) for norm in trained_norms(method)]
        attack = attacks[0] if len(attacks) == 1 else tuple(attacks) or None
        return Selection(attack=attack, **entry)


def write_spec(work: TrainRun | EvalRun) -> str:
    """A job's work as JSON, and where its classes are: anybody's module may hold them."""
    classes: dict[str, str] = {}
    for one in _classes(work):
        module = classes.setdefault(one.__name__, one.__module__)
        if module != one.__module__:
            found = f"that of {module} and that of {one.__module__}"
            raise expected(f"one class {one.__name__} in {work.id}", found, "rename one of them")
    content = {"classes": classes, "id": work.id, "run": canonical(work)}
    return json.dumps(content, separators=(",", ":"))


def _classes(value: Any) -> Iterator[type]:
    if is_dataclass(value):
        yield type(value)
        value = tuple(getattr(value, field.name) for field in fields(value))
    for part in value if isinstance(value, tuple) else ():
        yield from _classes(part)


def read_spec(text: str) -> Any:
    """The TrainRun or EvalRun that `write_spec` wrote, the same to the last field."""
    try:
        content = json.loads(text)
        places = {name: importlib.import_module(own) for name, own in content["classes"].items()}
        classes = {name: getattr(module, name) for name, module in places.items()}
        work = restored(content["run"], classes)
        if work.id != content["id"]:
            raise expected(f"the spec of {content['id']}", f"that of {work.id}", "start Snakemake")
        return work
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise expected("a spec that the workflow wrote", f"{error!r}", "start Snakemake") from None
