"""Verdicts on trees of comparisons, the same for both sources of numbers. Torch-free.

A comparison is true, false or open. On printed numbers it is true or false. On our records it is open
unless its test rejects equality at 5 % after Holm's correction over the comparisons of the tree.
`Every` and `Some` combine them by three-valued logic.

Comparisons without numbers are left out: if all others are true, the tree holds where measured. A
missing alternative might be true, so `Some` keeps all its parts unless all are missing.
"""

from collections.abc import Callable

from harness.core.statistics import holm
from harness.papers.comparisons import Comparison, Every, Evidence, MissingError, Tree, comparisons

LEVEL = 0.05
_SHOWN = 3  # reports print up to this many comparisons one by one


class Verdict:
    """The verdict of one source on one tree: `true` is True, False, or None if it is open."""

    def __init__(self, tree: Tree, source: Callable[[Comparison], Evidence]) -> None:
        self.found: dict[Comparison, Evidence] = {}
        self.missing: dict[Comparison, MissingError] = {}
        for comparison in comparisons(tree):
            try:
                self.found[comparison] = source(comparison)
            except MissingError as error:
                self.missing[comparison] = error
        tested = {c: evidence.test.p for c, evidence in self.found.items() if evidence.test}
        self.p = dict(zip(tested, holm(list(tested.values())), strict=True))
        self.margin = {c: c.margin(found.one, found.other) for c, found in self.found.items()}
        self.truth = {
            c: None if self.p.get(c, 0.0) >= LEVEL else c.holds(margin)
            for c, margin in self.margin.items()
        }
        whole, measured, self._deciding = self._judge(tree)
        self.whole = whole is not None or not self.missing  # what is missing makes no difference
        self.true = whole if self.whole or not measured else _combined(measured, decisive=False)

    def _judge(self, tree: Tree) -> tuple[bool | None, list[bool | None], list[Comparison]]:
        """A tree's truth, the truths of its measured parts, and the comparisons that decide it."""
        if isinstance(tree, Comparison):
            known = [tree] if tree in self.found else []
            return self.truth.get(tree), [self.truth[c] for c in known], known
        parts = [self._judge(part) for part in tree.parts]
        measured = [truth for _, some, _ in parts for truth in some]
        whole = _combined([truth for truth, _, _ in parts], decisive=not isinstance(tree, Every))
        if isinstance(tree, Every):
            return whole, measured, [c for _, _, deciding in parts for c in deciding]
        rank = {True: 2, None: 1, False: 0}
        best = max(
            (deciding for _, _, deciding in parts if deciding),
            key=lambda some: min((rank[self.truth[c]], self.margin[c]) for c in some),
            default=[],
        )
        return whole, [whole] if measured else [], best

    def word(self, where: str, nowhere: str) -> str:
        """The verdict in a word or two, such as `holds where measured (1 of 2 comparisons)`."""
        if not self.found:
            return nowhere
        if self.true and not self.whole:
            every = len(self.found) + len(self.missing)
            return f"holds where {where} ({len(self.found)} of {every} comparisons)"
        return {True: "holds", False: "fails", None: "undecided"}[self.true]

    def text(self, not_there: str) -> str:
        """The numbers that decide, and what is missing."""
        numbers, missing = self._numbers(), self._reasons()
        return f"{numbers}; {not_there}: {missing}" if numbers and missing else numbers or missing

    def _numbers(self) -> str:
        """All deciding comparisons; of many, how many are true, and the weakest one."""
        deciding = self._deciding
        if len(deciding) <= _SHOWN:
            return "; ".join(self._shown(comparison) for comparison in deciding)
        truths = [self.truth[comparison] for comparison in deciding]
        # If a missing alternative leaves the verdict open, no comparison has the verdict's truth.
        alike = [c for c, truth in zip(deciding, truths, strict=True) if truth is self.true]
        weakest = min(alike or deciding, key=lambda c: self.margin[c])
        words = {True: "true", False: "false", None: "open"}
        counts = [f"{truths.count(t)} {word}" for t, word in words.items() if t in truths]
        return f"{self._shown(weakest)} (of {len(deciding)} comparisons {', '.join(counts)})"

    def _shown(self, comparison: Comparison) -> str:
        p = f", p = {self.p[comparison]:.2g}" if comparison in self.p else ""
        return self.found[comparison].text + p

    def _reasons(self) -> str:
        """Each reason once, with some of the missing names and the number of comparisons."""
        reasons: dict[str, list[str]] = {}
        for error in self.missing.values():
            reasons.setdefault(error.reason, []).append(error.name)
        texts = []
        for reason, names in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
            different = [name for name in dict.fromkeys(names) if name]
            more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
            shown = " ".join(filter(None, [reason, ", ".join(different[:_SHOWN]) + more]))
            texts.append(f"{shown} ({len(names)} comparison{'s' * (len(names) > 1)})")
        return "; ".join(texts)


def _combined(truths: list[bool | None], decisive: bool) -> bool | None:
    """Three-valued logic: one False decides `Every`, one True decides `Some`."""
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive
