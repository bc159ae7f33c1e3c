"""The identity of a run: the hash of its dataclass as JSON.

Class names and a REVISION per class are part of it: raise REVISION when an algorithm changes, and its
results are made again; an edited comment changes nothing. Only None is left out, so a new optional
field keeps old ids; an edited default changes them.
"""

from __future__ import annotations

import hashlib
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from harness.core.errors import expected, unknown


def canonical(value: Any) -> Any:
    """`value` as plain JSON data; fractions stay text ("8/255"); unknown types are refused."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: canonical(getattr(value, f.name)) for f in fields(value)}
        return {
            "class": type(value).__name__,
            "revision": getattr(type(value), "REVISION", 1),
            **{name: entry for name, entry in own.items() if entry is not None},
        }
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"expected a finite number in a run's identity, found {value!r}")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [canonical(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): canonical(entry) for key, entry in sorted(value.items())}
    raise TypeError(
        f"expected dataclasses, text, numbers, fractions, tuples or mappings in a run's identity, "
        f"found {type(value).__name__}"
    )


def restored(data: Any, classes: Mapping[str, type], hint: Any = None) -> Any:
    """The dataclass that `canonical` wrote; `classes` by the names that are allowed."""
    if isinstance(data, list):
        return tuple(restored(entry, classes, hint) for entry in data)
    if isinstance(data, str) and _mentions(hint, Fraction):
        return Fraction(data)
    if not (isinstance(data, Mapping) and "class" in data):
        return data
    name, revision = data["class"], data["revision"]
    if name not in classes:
        raise unknown("class", name, classes, "a spec")
    own = getattr(classes[name], "REVISION", 1)
    if revision != own:
        found = f"revision {revision}"
        raise expected(f"revision {own} of {name} in a spec", found, "use the code that wrote it")
    hints = _hints(classes[name])
    values = {f.name: data.get(f.name) for f in fields(classes[name]) if f.init}  # None was dropped
    return classes[name](
        **{key: restored(value, classes, hints[key]) for key, value in values.items()}
    )


_hints = cache(typing.get_type_hints)


def _mentions(hint: Any, wanted: type) -> bool:
    return hint is wanted or any(_mentions(one, wanted) for one in typing.get_args(hint))


def fingerprint(value: Any) -> str:
    """Ten hexadecimal digits that change whenever `value` does."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def seed_from(*parts: int | str) -> int:
    """A 63-bit seed for one role of one run, independent of the seeds of other roles."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
