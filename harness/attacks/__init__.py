"""Attacks on networks, and the registry of those that a column of config/grid.yaml may name.

Imports models and below; importing it loads no torch.
"""

from collections.abc import Callable, Mapping
from functools import partial

from harness.attacks.attack import Staged
from harness.attacks.autoattack import Cascade, Component
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD


def component(name: str, ball: Ball, autoattack: Mapping[str, int]) -> Component:
    return Component(ball, name, **autoattack)


def cascade(ball: Ball, autoattack: Mapping[str, int]) -> Cascade:
    return Cascade.standard(ball, **autoattack)


def rand(ball: Ball, autoattack: Mapping[str, int]) -> Cascade:
    return Cascade.random(ball, **autoattack)


# A column's `attack` -> the dataclass or function that makes it (`build_attack` in grid/build.py). Of
# the threat's `ball` and `step` and the scale's `autoattack` it gets those that it names; its other
# arguments are fields of the column.
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
    "rand": rand,
}
