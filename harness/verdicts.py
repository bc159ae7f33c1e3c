"""Does a claim hold? On numbers alone, or on images with paired statistics. Torch-free.

A claim is a tree of comparisons. Each is true, false or open; `every` and `some` join them as logic
does when something is not known. On printed numbers a comparison is true or false. On ours it is open
unless its paired test rejects equality at 5 % after Holm's correction over the claim's comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.statistics import Difference, holm

LEVEL = 0.05
_SHOWN = 3  # so many comparisons are printed one by one


@dataclass(frozen=True)
class Number:
    """One number of an artefact: of one method in one column, or in the mean of several."""

    artefact: str
    dataset: str
    network: str
    method: str
    columns: tuple[str, ...]

    @property
    def column(self) -> str:
        return self.columns[0] if len(self.columns) == 1 else f"mean of {', '.join(self.columns)}"


@dataclass(frozen=True)
class Comparison:
    """`one` is better than `other`: above it, or below it where `lower` is better."""

    one: Number
    other: Number | float
    lower: bool = False

    @property
    def numbers(self) -> list[Number]:
        return [number for number in (self.one, self.other) if isinstance(number, Number)]


@dataclass(frozen=True)
class Every:
    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Some:
    parts: tuple[Tree, ...]


Tree = Comparison | Every | Some


@dataclass(frozen=True)
class Outcome:
    """What was found for a comparison; `gain` is positive where the claim is right."""

    gain: float
    text: str
    test: Difference | None = None  # none for numbers without images behind them
    missing: bool = False


@dataclass(frozen=True)
class Verdict:
    true: bool | None
    missing: bool
    numbers: str


def leaves(tree: Tree) -> Iterator[Comparison]:
    if isinstance(tree, Comparison):
        yield tree
    else:
        for part in tree.parts:
            yield from leaves(part)


def judge(tree: Tree, compare: Callable[[Comparison], Outcome]) -> Verdict:
    found = {comparison: compare(comparison) for comparison in leaves(tree)}
    tested = [c for c, outcome in found.items() if outcome.test is not None]
    corrected = dict(zip(tested, holm([_p(found[c]) for c in tested]), strict=True))
    truth = {c: _truth(outcome, corrected.get(c)) for c, outcome in found.items()}
    true = _joined(tree, truth)
    lacking = [outcome.text for c, outcome in found.items() if outcome.missing]
    if true is None and lacking:
        return Verdict(None, True, "; ".join(dict.fromkeys(lacking)))
    deciding = [c for c in _deciding(tree, truth, found) if not found[c].missing]
    return Verdict(true, False, _told(true, deciding, truth, found, corrected))


def _p(outcome: Outcome) -> float:
    assert outcome.test is not None
    return outcome.test.p


def _truth(outcome: Outcome, p: float | None) -> bool | None:
    if outcome.missing or (p is not None and p >= LEVEL):
        return None
    return outcome.gain > 0


def _joined(tree: Tree, truth: dict[Comparison, bool | None]) -> bool | None:
    if isinstance(tree, Comparison):
        return truth[tree]
    parts = [_joined(part, truth) for part in tree.parts]
    decisive = isinstance(tree, Some)  # one True decides `some`, one False decides `every`
    if decisive in parts:
        return decisive
    return None if None in parts else not decisive


def _deciding(
    tree: Tree, truth: dict[Comparison, bool | None], found: dict[Comparison, Outcome]
) -> list[Comparison]:
    """The comparisons that carry the verdict: of alternatives, only the best one."""
    if isinstance(tree, Comparison):
        return [tree]
    parts = [_deciding(part, truth, found) for part in tree.parts]
    if isinstance(tree, Every):
        return [comparison for part in parts for comparison in part]
    rank = {True: 2, None: 1, False: 0}
    return max(parts, key=lambda part: min((rank[truth[c]], found[c].gain) for c in part))


def _told(
    true: bool | None,
    deciding: Sequence[Comparison],
    truth: dict[Comparison, bool | None],
    found: dict[Comparison, Outcome],
    corrected: dict[Comparison, float],
) -> str:
    """All comparisons; of many how many hold, and the weakest of the verdict's kind."""

    def told(comparison: Comparison) -> str:
        p = corrected.get(comparison)
        return found[comparison].text + ("" if p is None else f", p = {p:.2g}")

    if len(deciding) <= _SHOWN:
        return "; ".join(told(comparison) for comparison in deciding)
    weakest = min((c for c in deciding if truth[c] is true), key=lambda c: found[c].gain)
    counts = [
        f"{sum(truth[c] is value for c in deciding)} {word}"
        for value, word in ((True, "true"), (False, "false"), (None, "open"))
        if any(truth[c] is value for c in deciding)
    ]
    return f"{told(weakest)} (of {len(deciding)} comparisons {', '.join(counts)})"
