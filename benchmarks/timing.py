"""Both sides of a comparison take turns, round after round, so that noise hits all of them.

The ratio of two is the median over rounds of the ratio within a round. The first round is a warm-up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of benchmarks/README.md."""

    what: str
    found: str
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Times:
    """Seconds of every contender in every round."""

    seconds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> float:
        """How many times as long the slow one takes."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return statistics.median(one / other for one, other in pairs)


def in_turn(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + warm_up):
        for name, run in contenders.items():
            began = clock()
            run()
            if number >= warm_up:
                seconds[name].append(clock() - began)
    return Times(seconds)


def faster(what: str, ratio: float, target: float, note: str = "") -> Row:
    """A row for a contender that should take a fraction of another's time."""
    return Row(what, f"{ratio:.2f}x as fast{note}", f">= {target:g}x", ratio >= target)
