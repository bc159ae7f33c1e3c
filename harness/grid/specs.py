"""What a job is to do: a training, planned from a method's slug, or an evaluation; as JSON.

The workflow plans; a job gets its spec on the command line and plans nothing.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from typing import Any

from harness.core.config import merged, read_grid
from harness.core.errors import UserError, expected
from harness.core.paths import canonical, field_names, restored
from harness.data.sets import SETS
from harness.grid.build import (
    DEFAULT_PRESET,
    SINGLE,
    Builder,
    Config,
    fraction,
    look_up,
    made,
    registry,
)
from harness.grid.columns import PROTOCOLS, Columns, EvalRun
from harness.models import NETWORKS
from harness.training.contracts import Method
from harness.training.runs import Augment, Recipe, Selection, Stretch, TrainRun, Watch, trained_norms


@cache
def standard() -> Config:
    """config/grid.yaml, whose names are known to every scale and grid."""
    return read_grid()


class Trainings:
    """The runs of a grid at one scale, planned when they are asked for."""

    def __init__(self, grid: Config, scale: Config) -> None:
        self.grid, self.scale, self.columns = grid, scale, Columns(grid, scale)
        self.runs: dict[str, TrainRun] = {}
        self.entries = dict(grid["methods"])  # and the variants that artefacts ask for
        known = {name: own for name, own in scale.get("presets", {}).items() if name in grid["presets"]}
        self.presets = merged(grid["presets"], known)
        self._methods = registry(grid["registry"])
        self._above: list[str] = []  # the methods whose parents are being planned
        self._built: dict[str, Method] = {}  # the last one of each slug
        for name, entry in grid["datasets"].items():
            classes = look_up("data set", name, SETS, "harness/data/sets.py").classes
            if len(entry.get("classes", range(classes))) != classes:
                found = len(entry["classes"])
                raise expected(f"{classes} names at datasets.{name}.classes", found, "name each once")
        for name in grid["networks"]:
            look_up("network", name, NETWORKS, "harness/models/__init__.py")

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
        builder, where = self._builder(dataset, network, artefact.get("threats", {})), f"methods.{slug}"
        entry = builder.entry(slug)
        method = self._built[slug] = builder.build(entry, where)
        preset = self.presets[entry.get("preset", DEFAULT_PRESET)]
        own = preset.get("recipes", {}).get(entry["method"], {})
        of_set = self.grid["datasets"][dataset].get("recipe", {})
        of_artefact, of_scale = artefact.get("recipe", {}), self.scale["recipe"]
        recipe = reduce(merged, [self.grid["recipe"], of_set, of_artefact, own, of_scale])
        augment = merged(self.grid["datasets"][dataset]["augment"], recipe.pop("augment", {}))
        recipe["augment"] = made(Augment, augment, f"{where}: the augmentation of {dataset}")
        fields = {
            "dataset": dataset,
            "network": network,
            "method": method,
            "recipe": made(Recipe, recipe, f"{where}: its recipe"),
            "selection": self._selection(preset, dataset, method),
            "seed": seed,
            "parents": self._parents(slug, entry, (dataset, network, seed), artefact),
            "watch": self._watch(dataset, artefact.get("watch"), where),
        }
        run = made(TrainRun, fields, where)
        return self.runs.setdefault(run.id, run)

    def _parents(
        self, slug: str, entry: Config, place: tuple[str, str, int], artefact: Config
    ) -> tuple[str, ...]:
        """The runs that a run starts from."""
        parents = entry.get("parents", [])
        if not isinstance(parents, list):
            raise expected(f"a list at methods.{slug}.parents", repr(parents), "write [at, at_l2]")
        if slug in self._above:
            cycle = " from ".join([*self._above, slug])
            raise expected("a method that does not start from itself", cycle, "change its parents")
        self._above.append(slug)
        try:
            artefact = {**artefact, "watch": None}
            return tuple(self.train_run(parent, *place, artefact).id for parent in parents)
        finally:
            self._above.pop()

    def _watch(self, dataset: str, entry: Config | None, where: str) -> Watch | None:
        if not entry:
            return None
        where, attack = f"{where}: its watch", self.columns.pgd(dataset, "linf", 20)
        moments = tuple(fraction(moment, f"{where}'s moments") for moment in entry["moments"])
        values = {**entry, "attack": attack, "moments": moments}
        return made(Watch, values, where)

    def _selection(self, preset: Config, dataset: str, method: Method) -> Selection:
        """An epoch is judged in the norms that its method trains against: threats go by their names."""
        entry = merged(self.scale["selection"], preset.get("selection", {}))
        if entry["use"] == "last":
            return Selection(**entry)
        attacks = [self.columns.pgd(dataset, norm, 20) for norm in trained_norms(method)]
        attack = attacks[0] if len(attacks) == 1 else tuple(attacks) or None
        return Selection(attack=attack, **entry)

    def check_places(self) -> None:
        """Builds every threat and optimizer, for each preset that it speaks of."""
        sets, networks = self.grid["datasets"], self.grid["networks"]
        for dataset, entry in sets.items():
            builder = self._builder(dataset, next(iter(networks)), {})
            for name, threat in entry["threats"].items():
                if "test_step" in threat:
                    self.columns.pgd(dataset, name, 1)
                for preset in [DEFAULT_PRESET, *(key for key in threat if key in self.presets)]:
                    builder.threat(name, f"datasets.{dataset}", preset)
        for network, entry in networks.items():
            builder = self._builder(next(iter(sets)), network, {})
            for name, optim in entry.items():
                for preset in [DEFAULT_PRESET, *(key for key in optim if key in self.presets)]:
                    builder.optim(name, f"networks.{network}", preset)

    def build_unused(self) -> None:
        """Builds all that no artefact asked for: a typo must not wait for its first use."""
        unused = self._unused()
        try:
            self._built.update(self._in_one_place()._everything(unused))
        except UserError as error:  # presets.yaml names threats that a user's grid may not have
            try:
                self._built.update(self._in_one_place(standard())._everything(unused))
            except UserError:
                raise error from None

    def _unused(self) -> list[str]:
        """Methods that were not built, and one of each class under each preset that speaks of it."""
        classes = {slug: entry["method"] for slug, entry in self.grid["methods"].items()}
        known = [slug for slug, name in classes.items() if name in self._methods]
        first: dict[str, str] = {}  # class of methods, or `single` -> its first method
        for slug in known:
            first.setdefault(classes[slug], slug)
            if not hasattr(self._methods[classes[slug]], "start"):
                first.setdefault(SINGLE, slug)
        for preset, entry in self.presets.items():
            spoken = entry.keys() | entry.get("recipes", {}).keys()
            known += [f"{slug}@{preset}" for name, slug in first.items() if name in spoken]
        return [slug for slug in known if slug not in self._built]

    def _in_one_place(self, *others: Config) -> Trainings:
        """The grid with one data set and one network, which have what all have; and with any recipe."""
        (dataset, entry), *_ = self.grid["datasets"].items()
        grids, network = [*others, self.grid], next(iter(self.grid["networks"]))
        sets = [own["threats"] for grid in grids for own in grid["datasets"].values()]
        networks = [own for grid in grids for own in grid["networks"].values()]
        grid = {
            **self.grid,
            "datasets": {dataset: {**entry, "threats": reduce(merged, sets)}},
            "networks": {network: reduce(merged, networks)},
            "recipe": {"epochs": 1, "batch_size": 1},
        }
        return Trainings(grid, {**self.scale, "datasets": {}, "networks": {}, "recipe": {}})

    def _everything(self, slugs: Iterable[str]) -> dict[str, Method]:
        """The methods by these slugs. All columns are resolved too."""
        (dataset,), (network,) = self.grid["datasets"], self.grid["networks"]
        for name, column in self.grid["columns"].items():
            for protocol in [PROTOCOLS[0], *(key for key in column if key in PROTOCOLS)]:
                self.columns.resolved(name, dataset, protocol)
        return {slug: self.train_run(slug, dataset, network, seed=0).method for slug in slugs}


def write_spec(work: TrainRun | Stretch | EvalRun) -> str:
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
    names = field_names(value.__class__)
    if names is not None:
        yield type(value)
        value = tuple(getattr(value, name) for name in names)
    for part in value if isinstance(value, tuple) else ():
        yield from _classes(part)


def read_spec(text: str) -> Any:
    """The Stretch or EvalRun that `write_spec` wrote, the same to the last field."""
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
