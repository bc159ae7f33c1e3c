"""From a config entry to the dataclass of a method or an attack, led by the types of its fields.

Named things are looked up where the run's surroundings define them: a `Threat` in its data set, an
`Optim` in its network, a learner among the grid's methods. Presets and scales lay further fields
under an entry; the entry itself always wins.
"""

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from harness.attacks.attack import Staged, Threat
from harness.attacks.balls import Ball
from harness.core.config import merged
from harness.core.errors import UserError, expected, unknown
from harness.training.contracts import Method
from harness.training.learner import Optim, Single

Config = Mapping[str, Any]  # a file of config/, a section or an entry of it
DEFAULT_PRESET = "unified"
_SINGLE = "single"  # in presets and scales: the fields that all one-objective methods share
# Resolving annotations is most of the cost of planning.
_hints, _signature = cache(typing.get_type_hints), cache(inspect.signature)


def registry(address: str) -> dict[str, type]:
    """METHODS of the module that the grid names: the harness itself imports no method."""
    module, _, name = address.partition(":")
    try:
        content = vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        remedy = f"put the folder of {module}.py into PYTHONPATH"
        raise expected(f"the module of the registry {address}", "none", remedy) from None
    return look_up("name", name, {key: content[key] for key in content if key[0] != "_"}, module)


def look_up(kind: str, name: str, table: Config, where: str) -> Any:
    """What a name of the config stands for."""
    if name not in table:
        raise unknown(kind, name, table, where)
    return table[name]


@dataclass(frozen=True)
class Builder:
    methods: Mapping[str, type]  # registry: name -> dataclass
    entries: Config  # the grid's methods: slug -> entry
    threats: Config  # of the data set
    optims: Config  # of the network
    presets: Config
    overlay: Config  # of the scale

    def entry(self, slug: str) -> dict[str, Any]:
        """A grid's entry. `slug@preset` asks for a preset by name, so there the preset wins."""
        slug, _, preset = slug.partition("@")
        entry = dict(look_up("method", slug, self.entries, "config/grid.yaml's methods"))
        if preset:
            source = look_up("preset", preset, self.presets, slug)
            for layer in self._layers(source, entry["method"], slug):
                entry = merged(entry, layer)
            entry["preset"] = preset
        return entry

    def _layers(self, source: Config, name: str, where: str) -> list[Config]:
        """What a preset or a scale says of a method: in general first, then of it in particular."""
        alone = hasattr(look_up("method class", name, self.methods, where), "start")
        return [source.get(key, {}) for key in ([name] if alone else [_SINGLE, name])]

    def build(self, spec: Config, where: str) -> Method:
        entry = {key: value for key, value in spec.items() if key != "parents"}
        name, preset = entry.pop("method"), entry.pop("preset", DEFAULT_PRESET)
        cls = look_up("method class", name, self.methods, where)
        for source in (self.overlay, look_up("preset", preset, self.presets, where)):
            for layer in reversed(self._layers(source, name, where)):
                entry = merged(layer, entry)
        own = {field.name for field in fields(cls)}
        if hasattr(cls, "start"):  # it owns its update; the others are run by a Single
            if "optim" in own:
                entry.setdefault("optim", "robust")
            return self._dataclass(cls, entry, where, preset)
        allowed = own | {"optim", "average"}
        for key in entry.keys() - allowed:
            raise unknown("field", key, allowed, where)
        of_objective = {key: entry.pop(key) for key in list(entry) if key in own}
        objective = self._dataclass(cls, of_objective, where, preset)
        single = {"optim": "robust", **entry, "objective": objective}
        return self._dataclass(Single, single, where, preset)

    def _dataclass(self, cls: type, entry: Config, where: str, preset: str) -> Any:
        hints, values = {field.name: _hints(cls)[field.name] for field in fields(cls)}, {}
        for key, value in entry.items():
            hint = look_up("field", key, hints, f"{where} ({cls.__name__})")
            values[key] = self._coerce(hint, value, f"{where}.{key}", preset)
        return _made(cls, values, where)

    def _coerce(self, hint: Any, value: Any, where: str, preset: str) -> Any:
        """A value of a config as its field's type wants it."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            if value is None:
                return None
            (hint,) = [argument for argument in arguments if argument is not type(None)]
            return self._coerce(hint, value, where, preset)
        if origin is tuple:
            return self._tuple(arguments, value, where, preset)
        named = {Threat: self._threat, Optim: self._optim, Single: self._learner}
        if hint in named and not isinstance(value, hint):
            return named[hint](value, where, preset)
        if is_dataclass(hint) and isinstance(value, Mapping):
            return self._dataclass(typing.cast(type, hint), value, where, preset)
        return _plain(hint, value, where)

    def _tuple(self, types_: tuple, value: Any, where: str, preset: str) -> tuple:
        if not isinstance(value, list | tuple):
            raise expected(f"a list at {where}", repr(value), "write [a, b, ...]")
        inner = [types_[0]] * len(value) if types_[-1] is Ellipsis else list(types_)
        if len(inner) != len(value):
            raise expected(f"{len(inner)} values at {where}", len(value), "add or drop some")
        pairs = zip(inner, value, strict=True)
        return tuple(self._coerce(h, v, f"{where}[{i}]", preset) for i, (h, v) in enumerate(pairs))

    def _named(self, table: Config, kind: str, name: str, where: str, preset: str) -> Config:
        """A table's entry, with its own overlay for the preset, if it has one."""
        entry = look_up(kind, name, table, where)
        plain = {key: value for key, value in entry.items() if key not in self.presets}
        return merged(plain, entry.get(preset, {}))

    def _threat(self, name: str, where: str, preset: str) -> Threat:
        entry = self._named(self.threats, "threat", name, where, preset)
        eps, step = (fraction(entry[key], f"threat {name}, {key}") for key in ("eps", "step"))
        return Threat(Ball(entry["norm"], eps), step, entry["steps"])

    def _optim(self, value: Any, where: str, preset: str) -> Optim:
        value = {"like": value} if isinstance(value, str) else dict(value)
        like = value.pop("like", "robust")
        entry = merged(self._named(self.optims, "optim", like, where, preset), value)
        return self._dataclass(Optim, entry, where, preset)

    def _learner(self, value: Any, where: str, preset: str) -> Single:
        """A base learner: a grid method's slug, or {learner: slug, <fields to change>}."""
        value = {"learner": value} if isinstance(value, str) else dict(value)
        slug = value.pop("learner")
        base = self.entry(slug)
        if hasattr(self.methods.get(base["method"]), "start"):
            raise expected(f"a one-objective method at {where}", slug, "use nt, at, trades1, ...")
        if isinstance(value.get("optim"), Mapping):  # {lr: ...} means: this learner's, but lr
            own = base.get("optim", "robust")
            own = {"like": own} if isinstance(own, str) else own
            value["optim"] = merged(own, value["optim"])
        return typing.cast(Single, self.build({"preset": preset, **base, **value}, where))


def _plain(hint: Any, value: Any, where: str) -> Any:
    """Numbers and texts; a whole number may stand for a float, and a fraction for either."""
    if hint is Fraction:
        return fraction(value, where)
    if hint is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise expected(f"a number at {where}", repr(value), "write it without quotes")
        return float(value)
    if hint in (int, bool, str) and type(value) is not hint:
        raise expected(f"{hint.__name__} at {where}", repr(value), "change its type")
    return value


def fraction(value: Any, where: str) -> Fraction:
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise expected(f"a number or fraction at {where}", repr(value), "write 8/255") from None


def build_attack(make: Callable[..., Staged], offered: Config, fields: Config, where: str) -> Staged:
    """The attack of a column: of what is `offered` it takes what it names, and all `fields`."""
    parameters = _signature(make).parameters
    own = [name for name in parameters if name not in offered]
    for name in fields:
        if name not in own:
            raise unknown("field", name, ["attack", "threat", "times", *own], where)
    given = {name: value for name, value in offered.items() if name in parameters}
    return _made(make, {**given, **fields}, where)


def _made(make: Callable[..., Any], values: Config, where: str) -> Any:
    """Calls `make`; the error for a missing or a refused value says where in the config it is."""
    for name, parameter in _signature(make).parameters.items():
        if parameter.default is parameter.empty and name not in values:
            raise expected(f"a value for {name} in {where}", "none", f"add {name}: ...")
    try:
        return make(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
