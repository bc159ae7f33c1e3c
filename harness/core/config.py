"""config/*.yaml and config/scales/*.yaml: read safely, checked against their schemas."""

from __future__ import annotations

import math
import textwrap
from collections import deque
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from yaml.composer import Composer, ComposerError
from yaml.constructor import SafeConstructor
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.resolver import Resolver

from harness.core.errors import UserError, expected, nearest, unknown

_SHIPPED = Path(__file__).resolve().parents[1] / "shipped"  # made by setup.py, in a wheel only
INSTALLED = _SHIPPED.is_dir()
ROOT = _SHIPPED if INSTALLED else Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
SCHEMAS = ROOT / "workflow" / "schemas"
_DEEPEST = 50
_LARGEST = 1_000_000  # entries of a config, each alias counted with all that it stands for
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is there: ten times as fast
_TAG = "tag:yaml.org,2002:"


class _Loader(Composer, SafeConstructor, Resolver):
    """PyYAML's safe loader, but strict: a key stands once and is text as written; a date is text;
    numbers are finite; no alias is inside its own anchor."""

    def __init__(self, text: str, name: str) -> None:
        for base in (Composer, SafeConstructor, Resolver):
            base.__init__(self)
        self.events, self.name, depth = deque[yaml.Event](), name, 0
        for event in yaml.parse(text, Loader=_PARSER):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > _DEEPEST:
                raise ComposerError(None, None, f"more than {_DEEPEST} levels", event.start_mark)
            self.events.append(event)
        self.sizes: dict[int, int] = {}  # node -> how many entries it stands for

    def check_event(self, *kinds: type) -> bool:
        return bool(self.events) and isinstance(self.events[0], kinds or object)

    def peek_event(self) -> yaml.Event:
        return self.events[0]

    def get_event(self) -> yaml.Event:
        return self.events.popleft()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        alias, mark = self.check_event(yaml.AliasEvent), self.peek_event().start_mark
        node = super().compose_node(parent, index)
        if alias and id(node) not in self.sizes:
            raise ComposerError(None, None, "an alias inside its own anchor", mark)
        if not alias:
            self.sizes[id(node)] = self._size(node)
        return node

    def _size(self, node: yaml.Node) -> int:
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        flat = [part for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,))]
        size = 1 + sum(self.sizes[id(part)] for part in flat)
        if size > _LARGEST:
            mark = node.start_mark
            raise ComposerError(None, None, f"more than {_LARGEST} entries through aliases", mark)
        return size

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ComposerError(None, None, "a key that is no text", key.start_mark)
            line = key.start_mark.line + 1
            if key.value in lines:
                found = f"{key.value!r} in line {lines[key.value]} and again in line {line}"
                raise expected(f"each key once in {self.name}", found, "delete one of them")
            lines[key.value] = line
            key.tag = key.tag if key.tag == f"{_TAG}merge" else f"{_TAG}str"
        return node

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        value = super().construct_yaml_float(node)
        if not math.isfinite(value):
            found = f"{node.value} in line {node.start_mark.line + 1}"
            raise expected(f"finite numbers in {self.name}", found, "write a number")
        return value


_Loader.add_constructor(f"{_TAG}float", _Loader.construct_yaml_float)
_Loader.add_constructor(f"{_TAG}timestamp", _Loader.construct_yaml_str)


def read_yaml(path: Path) -> Any:
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), path.name)
    except FileNotFoundError:
        raise UserError(f"expected a config file at {path}, found none; give its path.") from None
    except OSError as error:
        raise expected(f"a config file at {path}", error.strerror, "give the path of a file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"expected plain YAML in {path}, found: {error}; fix it.") from None


def parse_yaml(text: str, name: str) -> Any:
    try:
        return _Loader(text, name).get_single_data()
    except (yaml.YAMLError, ValueError, LookupError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"expected plain YAML in {name}, found: {reason}; fix it.") from None


def scales() -> list[str]:
    return sorted(path.stem for path in (CONFIG / "scales").glob("*.yaml"))


def read_scale(name: str) -> dict[str, Any]:
    if name not in scales():
        raise unknown("scale", name, scales(), "config/scales")
    path = CONFIG / "scales" / f"{name}.yaml"
    return fitting(read_yaml(path), "scale", path.name)


def read_grid(path: Path | None = None) -> dict[str, Any]:
    """Our grid, or a user's: a whole one, or entries that lie over ours (`extends: config/grid.yaml`).

    The presets are those of config/presets.yaml, unless a whole grid has its own.
    """
    path = path or CONFIG / "grid.yaml"
    content, presets = read_yaml(path), {"presets": read_yaml(CONFIG / "presets.yaml")}
    if isinstance(content, dict):
        if "extends" in content:
            content = merged({**presets, **read_yaml(CONFIG / "grid.yaml")}, content)
        content = {**presets, **content}
    return fitting(content, "grid", path.name)


def read_claims(path: Path | None = None) -> dict[str, Any]:
    path = path or CONFIG / "claims.yaml"
    return fitting(read_yaml(path), "claims", path.name)


def read_papers() -> dict[str, Any]:
    """Who published which method."""
    return fitting(read_yaml(CONFIG / "papers.yaml"), "papers", "papers.yaml")


# A 3.0 is no whole number: a run with it would have another id, and fail where it counts.
_TYPES = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
    {
        "integer": lambda _, value: type(value) is int,
        "number": lambda _, value: type(value) in (int, float) and -math.inf < value < math.inf,
    }
)
_Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=_TYPES)


_RULES = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}


@cache
def _validator(schema: str, part: str) -> Any:
    """The validator of a schema of workflow/schemas, or of a part of it such as `#/$defs/artefact`."""
    files = [(path.name, read_yaml(path)) for path in SCHEMAS.glob("*.yaml")]
    for _, content in files:
        del content["$schema"]  # by which jsonschema would choose a validator with other types
    known = Registry().with_resources([(name, DRAFT202012.create_resource(own)) for name, own in files])
    return _Validator({"$ref": f"{schema}.schema.yaml{part}"}, registry=known)


def fitting(content: Any, schema: str, where: str, part: str = "") -> Any:
    """The content of a config file, or a part of it, if it fits its schema."""
    error = jsonschema.exceptions.best_match(_validator(schema, part).iter_errors(content))
    if error is None:
        return content
    rule, allowed, instance = error.validator, error.validator_value, error.instance
    steps = ".".join(str(step) for step in error.absolute_path)
    place = f"{steps} of {where}" if steps else where
    told = allowed if rule == "not" else error.schema
    wanted = told.get("description", f"{_RULES.get(rule, rule)} {allowed}")
    found, remedy = repr(instance), f"see what workflow/schemas/{schema}.schema.yaml allows"
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        extra = next(key for key in instance if key not in known)
        found, remedy = f"the key {extra!r}", nearest(extra, known)
    elif rule == "enum":
        remedy = nearest(instance, allowed)
    elif rule == "dependentRequired":
        found = error.message
    elif rule == "required":
        found = "no " + ", ".join(key for key in allowed if key not in instance)
    elif isinstance(instance, Mapping):
        found = "the keys " + ", ".join(instance) if instance else "nothing"
    raise expected(f"{wanted} at {place}", textwrap.shorten(found, 200), remedy)


def merged(base: Any, over: Any) -> Any:
    """`over` on top of `base`: mappings are merged key by key, anything else is replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        both = {key: merged(base[key], over[key]) for key in base.keys() & over.keys()}
        return {**base, **over, **both}
    return over
