"""Does a claim hold? On numbers alone, or on images with paired statistics. Torch-free.

A claim is a tree of comparisons. Each is true, false or open; `every` and `some` join them as logic
does when something is not known. On printed numbers a comparison is true or false. On ours it is open
unless its paired test rejects equality at 5 % after Holm's correction over the claim's comparisons.

What cannot be compared for want of a number is left aside: a claim that would be open for that alone
holds where measured. Of alternatives none is left aside, unless all are: the lacking one may be true.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.core.statistics import Difference, holm

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
    classes: tuple[str, ...] = ()  # on images of these classes alone
    wrong_by: str = ""  # on images alone that this method gets wrong
    minus: str = ""  # not its own accuracy but its lead over this method
    deviation: bool = False  # not the mean over seeds but their deviation

    @property
    def column(self) -> str:
        name = self.columns[0] if len(self.columns) == 1 else f"mean of {', '.join(self.columns)}"
        return f"deviation of {name} over seeds" if self.deviation else name

    @property
    def parts(self) -> list[Number]:
        """The accuracies on all images that it is computed from: a method's, then its rivals'."""
        place = (self.artefact, self.dataset, self.network)
        methods = [name for name in (self.method, self.minus, self.wrong_by) if name]
        return [Number(*place, method, self.columns) for method in methods]


@dataclass(frozen=True)
class Comparison:
    """`one` is better than `other`: above it, or below it where `lower` is better."""

    one: Number
    other: Number | float
    lower: bool = False

    @property
    def numbers(self) -> list[Number]:
        both = [number for number in (self.one, self.other) if isinstance(number, Number)]
        return [part for number in both for part in number.parts]


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
    text: str  # of a missing one: why
    test: Difference | None = None  # none for numbers without images behind them
    missing: bool = False
    lacks: str = ""  # of a missing one: what its reason speaks of, if many share that reason


@dataclass(frozen=True)
class Verdict:
    """`whole` if what is missing makes no difference; `numbers` decide, `lacking` are missing."""

    true: bool | None
    whole: bool
    measured: int  # comparisons
    comparisons: int
    numbers: str
    lacking: str


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
    missing = {c: outcome for c, outcome in found.items() if outcome.missing}
    whole = _joined(tree, truth)
    there = _measured(tree, missing)
    true = whole if whole is not None or there is None else _joined(there, truth)
    deciding = _deciding(tree, truth, found)
    return Verdict(
        true,
        whole is not None or not missing,
        len(found) - len(missing),
        len(found),
        _told(true, deciding, truth, found, corrected),
        _lacking(missing.values()),
    )


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


def _measured(tree: Tree, missing: Container[Comparison]) -> Tree | None:
    """The tree without what is missing. A missing alternative might be true, so all are kept."""
    if isinstance(tree, Comparison):
        return None if tree in missing else tree
    parts = [_measured(part, missing) for part in tree.parts]
    kept = tuple(part for part in parts if part is not None)
    if not kept:
        return None
    return tree if isinstance(tree, Some) else Every(kept)


def _deciding(
    tree: Tree, truth: dict[Comparison, bool | None], found: dict[Comparison, Outcome]
) -> list[Comparison]:
    """The measured comparisons that carry the verdict: of alternatives, only the best one."""
    if isinstance(tree, Comparison):
        return [] if found[tree].missing else [tree]
    parts = [_deciding(part, truth, found) for part in tree.parts]
    if isinstance(tree, Every):
        return [comparison for part in parts for comparison in part]
    rank = {True: 2, None: 1, False: 0}
    return max(
        filter(None, parts),
        key=lambda part: min((rank[truth[c]], found[c].gain) for c in part),
        default=[],
    )


def _lacking(missing: Iterable[Outcome]) -> str:
    """Each reason once, with how many comparisons it costs and some of what it speaks of."""
    reasons: dict[str, list[Outcome]] = {}
    for outcome in missing:
        reasons.setdefault(outcome.text, []).append(outcome)
    texts = []
    for reason, some in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        names = [name for name in dict.fromkeys(outcome.lacks for outcome in some) if name]
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        count = f"{len(some)} comparison{'s' * (len(some) > 1)}"
        texts.append(f"{reason}{' ' * bool(names)}{shown} ({count})")
    return "; ".join(texts)


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
    of_its_kind = [c for c in deciding if truth[c] is true]  # none if a lacking alternative decides
    weakest = min(of_its_kind or deciding, key=lambda c: found[c].gain)
    counts = [
        f"{sum(truth[c] is value for c in deciding)} {word}"
        for value, word in ((True, "true"), (False, "false"), (None, "open"))
        if any(truth[c] is value for c in deciding)
    ]
    return f"{told(weakest)} (of {len(deciding)} comparisons {', '.join(counts)})"
