"""The papers' claims and what becomes of them: `python -m harness claims --scale smoke`. Torch-free.

Reads config/claims.yaml; writes reports/<scale>/claims.csv and claims.md. Each claim is judged on the
published numbers (holds, fails, no number) and on our records (holds, fails, undecided, not measured).
Where some of a claim's comparisons lack a number, it is judged on the others, and the verdict says so.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from harness.core.config import read_claims
from harness.core.errors import unknown
from harness.core.files import write_whole
from harness.grid.plan import Plan, reported
from harness.papers.evidence import Printed
from harness.papers.measured import Measured, cells
from harness.papers.relations import Part, tree
from harness.papers.verdicts import LEVEL, Every, Number, Tree, Verdict, judge, leaves


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    source: str
    tree: Tree

    @property
    def numbers(self) -> list[Number]:
        every = [number for comparison in leaves(self.tree) for number in comparison.numbers]
        return list(dict.fromkeys(every))

    @property
    def artefacts(self) -> list[str]:
        return list(dict.fromkeys(number.artefact for number in self.numbers))


class Reader:
    """claims.yaml -> trees of comparisons. Patterns are resolved by the rows that the grid has."""

    def __init__(self, content: Mapping[str, Any], plan: Plan) -> None:
        self.content, self.plan = content, plan

    def claims(self) -> list[Claim]:
        return [
            Claim(entry["id"], entry["claim"], entry["source"], self._every(entry["all_of"]))
            for entry in self.content["claims"]
        ]

    def _every(self, entries: list[Mapping[str, Any]]) -> Every:
        parts = [self._part(entry, place) for entry in entries for place in self._places(entry)]
        return Every(tuple(parts))

    def _places(self, entry: Mapping[str, Any]) -> list[str]:
        places = entry["in"]
        if isinstance(places, list):
            return places
        if places not in self.content["places"]:
            raise unknown("name of places", places, self.content["places"], "config/claims.yaml")
        return self.content["places"][places]

    def _methods(self, some: str | list[str], place: str, but: tuple[str, ...] = ()) -> list[str]:
        if isinstance(some, list):
            return some
        if "*" not in some:
            return self.content["groups"].get(some, [some])
        rows = self.plan.rows_of(place.partition("/")[0])
        names = [name for name in rows if fnmatchcase(name, some) and name not in but]
        return names or [some]

    def _part(self, entry: Mapping[str, Any], place: str) -> Tree:
        classes = self.plan.grid["datasets"].get(place.split("/")[1], {}).get("classes", ())

        def names(some: str | list[str], but: tuple[str, ...]) -> list[str]:
            return self._methods(some, place, but)

        return tree(Part(entry, place, names, tuple(classes)))


def read(plan: Plan, path: Path | None = None) -> list[Claim]:
    return Reader(read_claims(path), plan).claims()


def runs(plan: Plan, claims: list[Claim]) -> list[str]:
    """The runs whose records the claims need."""
    found = cells(plan, [number for claim in claims for number in claim.numbers])
    return list(dict.fromkeys(run for some in found.values() for cell in some for run in cell.runs))


def verdicts(plan: Plan, claims: list[Claim], results: Path, reports: Path) -> pd.DataFrame:
    printed = Printed(plan)
    numbers = [number for claim in claims for number in claim.numbers]
    measured = Measured(plan, results, reports, numbers)
    rows = []
    for claim in claims:
        theirs, ours = judge(claim.tree, printed), judge(claim.tree, measured)
        rows.append(
            {
                "id": claim.id,
                "claim": claim.text,
                "source": claim.source,
                "published_verdict": worded(theirs, "printed", "no number"),
                "published_numbers": told(theirs, "not printed"),
                "our_verdict": worded(ours, "measured", "not measured"),
                "our_numbers": told(ours, "not measured") + measured.doubts(claim.numbers),
                "artefacts": " ".join(claim.artefacts),
            }
        )
    return pd.DataFrame(rows)


def worded(verdict: Verdict, where: str, nowhere: str) -> str:
    if not verdict.measured:
        return nowhere
    if verdict.true and not verdict.whole:
        return f"holds where {where} ({verdict.measured} of {verdict.comparisons} comparisons)"
    return {True: "holds", False: "fails", None: "undecided"}[verdict.true]


def told(verdict: Verdict, lacking: str) -> str:
    if not (verdict.numbers and verdict.lacking):
        return verdict.numbers or verdict.lacking
    return f"{verdict.numbers}; {lacking}: {verdict.lacking}"


def counted(verdicts: Iterable[str]) -> dict[str, int]:
    """How often each verdict was reached; what holds only in part is counted by itself."""
    return dict(Counter(verdict.partition(" (")[0] for verdict in verdicts).most_common())


def markdown(table: pd.DataFrame, notice: str) -> str:
    lines = [
        "# The papers' claims",
        "",
        f"*{notice}*",
        "",
        f"Published numbers: {_counted(table.published_verdict)}. Ours: {_counted(table.our_verdict)}.",
        "",
        "Ours are compared image by image, with 95 % intervals. A comparison counts if its paired",
        "test (exact McNemar for right and wrong, Student's t for means of columns or several seeds)",
        f"is significant at {100 * LEVEL:.0f} % after Holm's correction over all comparisons of its",
        "claim; p is after that correction. Different classes are compared by Welch's t, a deviation",
        "over seeds, less what the number of images adds to it, by chi-squared. With one seed an",
        "interval covers other test images, not other trainings. Published numbers have no interval:",
        "they are compared as printed. A claim *holds where measured* if all comparisons that this",
        "scale has the numbers for are true.",
        "",
        "| claim | published | ours |",
        "|---|---|---|",
    ]
    for row in table.itertuples():
        theirs = f"**{row.published_verdict}**: {row.published_numbers}"
        ours = f"**{row.our_verdict}**: {row.our_numbers}"
        lines.append(f"| {row.claim} ({row.source}) | {theirs} | {ours} |")
    return "\n".join(lines) + "\n"


def _counted(verdicts: Iterable[str]) -> str:
    return ", ".join(f"{word} {count}" for word, count in counted(verdicts).items())


def write_claims(plan: Plan, results: Path, reports: Path, claims: Path | None = None) -> Path:
    table = verdicts(plan, read(plan, claims), results, reports)
    stem = reports / plan.name / "claims"
    write_whole(stem.with_suffix(".md"), markdown(table, plan.scale["notice"]))
    write_whole(stem.with_suffix(".csv"), table.to_csv(index=False))
    return stem.with_suffix(".md")


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the papers' claims.")
    parser.add_argument("--claims", type=Path)
    plan, options = reported(parser)
    path = write_claims(plan, options.results, options.reports, options.claims)
    print(f"the verdicts are at {path}")
