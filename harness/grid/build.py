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
from functools import cache, partial
from typing import Any

from harness.attacks.attack import Staged, Threat
from harness.core.config import merged
from harness.core.errors import UserError, expected, unknown
from harness.training.contracts import Method
from harness.training.learner import Optim, Single

Config = Mapping[str, Any]  # a file of config/, a section or an entry of it
DEFAULT_PRESET = "unified"
_LARGEST = 1e300  # of a float; NaN is not below it either
SINGLE = "single"  # in presets and scales: the fields that all one-objective methods share


@cache
def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    """The types of a dataclass's fields or of a function's arguments; resolving them is slow."""
    known = typing.get_type_hints(make.func if isinstance(make, partial) else make)
    return {name: known.get(name, Any) for name in inspect.signature(make).parameters}


@cache
def _required(make: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(make).parameters.values()
    return [one.name for one in parameters if one.default is one.empty]


def registry(address: str) -> Mapping[str, Any]:
    """METHODS of the module that the grid names: the harness itself imports no method."""
    module, _, name = address.partition(":")
    try:
        content = vars(importlib.import_module(module))
    except Exception as error:  # whatever a module of the user's raises
        found, remedy = f"{type(error).__name__}: {' '.join(str(error).split())}", f"mend {module}"
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            found, remedy = "none", f"put the folder of {module}.py into PYTHONPATH"
        raise expected(f"the module of the registry {address}", found, remedy) from error
    table = look_up("name", name, {key: content[key] for key in content if key[0] != "_"}, module)
    if not isinstance(table, Mapping):
        raise expected(f"a mapping as the registry {address}", type(table).__name__, "name another")
    return table


def look_up(kind: str, name: Any, table: Config, where: str) -> Any:
    """What a name of the config stands for."""
    if not isinstance(name, str) or name not in table:
        raise unknown(kind, name, table, where)
    return table[name]


def fields_at(value: Any, where: str) -> dict[str, Any]:
    """A mapping of the config."""
    if not isinstance(value, Mapping):
        raise expected(f"fields at {where}", repr(value), "write {field: value}")
    return dict(value)


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
        slug, at, preset = slug.partition("@") if isinstance(slug, str) else (slug, "", "")
        entry = dict(look_up("method", slug, self.entries, "config/grid.yaml's methods"))
        if at:
            source = look_up("preset", preset, self.presets, slug)
            for layer in self._layers(source, entry["method"], slug):
                entry = merged(entry, layer)
            entry["preset"] = preset
        return entry

    def _layers(self, source: Config, name: str, where: str) -> list[Config]:
        """What a preset or a scale says of a method: in general first, then of it in particular."""
        alone = hasattr(look_up("method class", name, self.methods, where), "start")
        return [source.get(key, {}) for key in ([name] if alone else [SINGLE, name])]

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
            return self._filled(cls, entry, where, preset)
        allowed = own | {"optim", "average"}
        for key in sorted(entry.keys() - allowed):
            raise unknown("field", key, allowed, where)
        of_objective = {key: entry.pop(key) for key in list(entry) if key in own}
        objective = self._filled(cls, of_objective, where, preset)
        single = {"optim": "robust", **entry, "objective": objective}
        return self._filled(Single, single, where, preset)

    def _filled(self, make: Callable[..., Any], entry: Config, where: str, preset: str) -> Any:
        """A dataclass, or what a function returns, of an entry's values."""
        hints, values = _hints(make), {}
        for key, value in entry.items():
            hint = look_up("field", key, hints, f"{where} ({make.__name__})")
            values[key] = self._coerce(hint, value, f"{where}.{key}", preset)
        return made(make, values, where)

    def _coerce(self, hint: Any, value: Any, where: str, preset: str) -> Any:
        """A value of a config as its field's type wants it."""
        hint = _without_none(hint, value)
        if hint is None:
            return None
        if typing.get_origin(hint) is tuple:
            return self._tuple(typing.get_args(hint), value, where, preset)
        named = {Threat: self.threat, Optim: self.optim, Single: self._learner, Method: self._method}
        if hint in named and (hint is Method or not isinstance(value, hint)):
            return named[hint](value, where, preset)
        if is_dataclass(hint) and not isinstance(value, typing.cast(type, hint)):
            return self._filled(typing.cast(type, hint), fields_at(value, where), where, preset)
        return _plain(hint, value, where)

    def _tuple(self, types_: tuple, value: Any, where: str, preset: str) -> tuple:
        if not isinstance(value, list | tuple):
            raise expected(f"a list at {where}", repr(value), "write [a, b, ...]")
        inner = [types_[0]] * len(value) if types_[-1] is Ellipsis else list(types_)
        if len(inner) != len(value):
            raise expected(f"{len(inner)} values at {where}", len(value), "add or drop some")
        pairs = zip(inner, value, strict=True)
        return tuple(self._coerce(h, v, f"{where}[{i}]", preset) for i, (h, v) in enumerate(pairs))

    def _named(
        self, table: Config, kind: str, name: str, where: str, preset: str, aside: str = ""
    ) -> Config:
        """A table's entry, with its own overlay for the preset, if it has one; without `aside`."""
        entry = look_up(kind, name, table, where)
        plain = {key: entry[key] for key in entry if key not in self.presets and key != aside}
        return merged(plain, fields_at(entry.get(preset, {}), f"{where}: {kind} {name}, {preset}"))

    def threat(self, name: str, where: str, preset: str) -> Threat:
        entry = self._named(self.threats, "threat", name, where, preset, aside="test_step")
        return self._filled(Threat.of, entry, f"{where}: threat {name}", preset)

    def optim(self, value: Any, where: str, preset: str) -> Optim:
        value = {"like": value} if isinstance(value, str) else fields_at(value, where)
        like = value.pop("like", "robust")
        entry = merged(self._named(self.optims, "optim", like, where, preset), value)
        return self._filled(Optim, entry, where, preset)

    def _learner(self, value: Any, where: str, preset: str) -> Single:
        """A base learner: a method that is run by a Single."""
        if isinstance(method := self._method(value, where, preset), Single):
            return method
        raise expected(f"a one-objective method at {where}", method.slug, "use nt, at, trades1, ...")

    def _method(self, value: Any, where: str, preset: str) -> Method:
        """A method inside another: a grid method's slug, or {learner: slug, <fields to change>}."""
        value = {"learner": value} if isinstance(value, str) else fields_at(value, where)
        if "learner" not in value:
            raise expected(f"a learner's name at {where}", repr(value), "write {learner: at, ...}")
        base = self.entry(value.pop("learner"))
        inside = _hints(look_up("method class", base["method"], self.methods, where)).values()
        if Method in inside or tuple[Single, ...] in inside:
            found, remedy = f"one of class {base['method']}", "use nt, at, trades1, ..."
            raise expected(f"a one-objective method at {where}", found, remedy)
        if isinstance(value.get("optim"), Mapping):  # {lr: ...} means: this learner's, but lr
            own = base.get("optim", "robust")
            own = {"like": own} if isinstance(own, str) else own
            value["optim"] = merged(own, value["optim"])
        return self.build({"preset": preset, **base, **value}, where)


def _without_none(hint: Any, value: Any) -> Any:
    """The type of a field that may be None, as it is for this value; None for None."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    own = [one for one in typing.get_args(hint) if one is not type(None)]
    return None if value is None else own[0] if len(own) == 1 else Any


_TYPES = {int: "a whole number", bool: "true or false", str: "text"}


def _plain(hint: Any, value: Any, where: str) -> Any:
    """Numbers and texts; a whole number may stand for a float, and a fraction for either."""
    if hint is Fraction:
        return fraction(value, where)
    if hint is float:
        number = type(value) in (int, float) and abs(value) < _LARGEST
        if not number:
            raise expected(f"a number at {where}", repr(value), "write one, without quotes")
        return float(value)
    if hint in _TYPES and type(value) is not hint:
        raise expected(f"{_TYPES[hint]} at {where}", repr(value), "change its type")
    return value


def fraction(value: Any, where: str) -> Fraction:
    try:
        if "e" in str(value) and not isinstance(value, float):
            raise ValueError  # 1e999999999 would fill the memory
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise expected(f"a number or fraction at {where}", repr(value), "write 8/255") from None


def build_attack(make: Callable[..., Staged], offered: Config, fields: Config, where: str) -> Staged:
    """The attack of a column: of what is `offered` it takes what it names, and all `fields`."""
    hints, values = _hints(make), {}
    own = [name for name in hints if name not in offered]
    for name, value in fields.items():
        if name not in own:
            raise unknown("field", name, ["attack", "threat", "times", *own], where)
        values[name] = _plain(_without_none(hints[name], value), value, f"{name} of {where}")
    given = {name: value for name, value in offered.items() if name in hints}
    return made(make, {**given, **values}, where)


def made(make: Callable[..., Any], values: Config, where: str) -> Any:
    """Calls `make`; the error for a missing or a refused value says where in the config it is."""
    for name in _required(make):
        if name not in values:
            raise expected(f"a value for {name} in {where}", "none", f"add {name}: ...")
    try:
        return make(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
