"""Attacks on networks, and the registry of those that a column of config/grid.yaml may name.

Imports models and below; importing it loads no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from harness.attacks.attack import Staged
from harness.attacks.autoattack import Cascade, Component
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.core.errors import UserError, expected, unknown


def component(name: str, ball: Ball, autoattack: Mapping[str, int]) -> Component:
    return Component(ball, name, **autoattack)


def cascade(ball: Ball, autoattack: Mapping[str, int]) -> Cascade:
    return Cascade.standard(ball, **autoattack)


# A column's `attack` -> the dataclass or function that makes it. Of the threat's `ball` and `step` and
# the scale's `autoattack` it gets those that it names; its other arguments are fields of the column.
ATTACKS: dict[str, Callable[..., Staged]] = {
    "pgd": PGD,
    "mim": partial(PGD, momentum=1.0),
    "cw": partial(PGD, loss="margin"),
    "apgd-ce": partial(component, "apgd-ce"),
    "apgd-dlr": partial(component, "apgd-dlr"),
    "apgd-t": partial(component, "apgd-t"),
    "fab-t": partial(component, "fab-t"),
    "square": partial(component, "square"),
    "aa": cascade,
}


def build(
    make: Callable[..., Staged],
    ball: Ball,
    step: Fraction,
    autoattack: Mapping[str, int],
    fields: Mapping[str, Any],
    where: str,
) -> Staged:
    """The attack of a column; `fields` are what the column says beside `attack` and `threat`."""
    parameters = inspect.signature(make).parameters
    offered = {"ball": ball, "step": step, "autoattack": autoattack}
    own = [name for name in parameters if name not in offered]
    for name in fields:
        if name not in own:
            raise unknown("field", name, ["attack", "threat", "times", *own], where)
    for name in own:
        if name not in fields and parameters[name].default is inspect.Parameter.empty:
            raise expected(f"a value for {name} in {where}", "none", f"add {name}: ...")
    given = {name: value for name, value in offered.items() if name in parameters}
    try:
        return make(**given, **fields)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
