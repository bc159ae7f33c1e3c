"""Ablations: a method of the grid crossed with axes, each variant an entry of its own. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from harness.core.config import merged
from harness.core.errors import unknown
from harness.grid.artefacts import VARIANT


def variants(grid: Mapping[str, Any], variation: Mapping[str, Any]) -> dict[str, Any]:
    """`{of: method, over: [axis, ...]}` -> the entries, by the slugs that artefacts call them."""
    base, axes = variation["of"], variation["over"]
    for axis in axes:
        if axis not in grid["axes"]:
            raise unknown("axis", axis, grid["axes"], "config/grid.yaml's axes")
    if base not in grid["methods"]:
        raise unknown("method", base, grid["methods"], "config/grid.yaml's methods")
    entries = {}
    for values in product(*(grid["axes"][axis].items() for axis in axes)):
        entry = grid["methods"][base]
        for _, fields in values:
            entry = merged(entry, fields)
        entries[VARIANT.join([base, *(str(label) for label, _ in values)])] = entry
    return entries
