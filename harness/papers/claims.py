"""Judges the papers' claims: `generalist-bench claims --scale smoke`. Torch-free.

Reads config/claims.yaml; writes reports/<scale>/claims.csv and claims.md. Each claim is judged on the
published numbers (holds, fails, no number) and on our records (holds, fails, undecided, not measured).
If some comparisons of a claim have no numbers, the others decide, and the verdict says so. Controls are
statements that no paper makes; they are judged in the same way, and counted by themselves.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.config import read_claims
from harness.core.errors import expected, unknown
from harness.core.files import in_csv, in_markdown, write_whole
from harness.grid.artefacts import rows_of
from harness.grid.plan import Plan, reported
from harness.grid.specs import standard
from harness.papers.comparisons import Every, Number, Tree, comparisons
from harness.papers.measured import Measured, planned_cells
from harness.papers.printed import Printed
from harness.papers.published import Papers
from harness.papers.relations import Statement, tree
from harness.papers.trainings import QUANTITIES
from harness.papers.verdicts import LEVEL, Verdict

if TYPE_CHECKING:
    import pandas as pd

Entry = Mapping[str, Any]  # of config/claims.yaml


@dataclass(frozen=True)
class Claim:
    """What a paper claims, or a control states, as a tree of comparisons."""

    id: str
    text: str
    source: str
    tree: Tree
    kind: str = "claim"  # or "control"

    @property
    def accuracies(self) -> list[Number]:
        found = [number for one in comparisons(self.tree) for number in one.accuracies]
        return list(dict.fromkeys(found))

    @property
    def artefacts(self) -> list[str]:
        return list(dict.fromkeys(number.artefact for number in self.accuracies))


def read(plan: Plan, path: Path | None = None) -> list[Claim]:
    return parse(read_claims(path), plan)


def parse(content: Entry, plan: Plan) -> list[Claim]:
    """The claims of a claims.yaml. Patterns mean the rows that the grid has."""
    claims: dict[str, Claim] = {}
    kinds = {"claim": content["claims"], "control": content.get("controls", ())}
    for kind, entry in ((kind, entry) for kind, entries in kinds.items() for entry in entries):
        name, parts = entry["id"], []
        if name in claims:
            raise expected("each claim's id once in claims.yaml", repr(name), "rename one of them")
        for part in entry["all_of"]:
            for statement in _statements(part, content, plan):
                _check_names(statement, content["groups"], plan, f"claim {name}")
                parts.append(tree(statement))
        claims[name] = Claim(name, entry["claim"], entry["source"], Every(tuple(parts)), kind)
    return list(claims.values())


def _check_names(statement: Statement, groups: Entry, plan: Plan, where: str) -> None:
    """Names are the grid's or config/grid.yaml's: claims also judge grids that have less."""
    artefact, dataset, network = statement.place.split("/")
    methods = [name.partition("@") for name in statement.methods]
    names = {
        "artefact": [artefact],
        "dataset": [dataset],
        "network": [network],
        "method": [name for name, _, _ in methods],
        "preset": [name for _, at, name in methods if at],
        "column": statement.columns,
    }
    for kind, wanted in names.items():
        known = _known(kind, artefact, plan.grid) | {*(plan.rows_of(artefact) * (kind == "method"))}
        missing = [name for name in wanted if not _among(known, name)]
        known |= _known(kind, artefact, standard()) if missing else set()
        for name in missing:
            if not _among(known, name):
                raise unknown(kind, name, {*known, *groups}, f"{where} ({statement.place})")


def _known(kind: str, artefact: str, grid: Entry) -> set[str]:
    own = {"method": rows_of(grid, grid["artefacts"].get(artefact, {})), "column": QUANTITIES}
    return {*grid[f"{kind}s"], *own.get(kind, ())}


def _among(known: Collection[str], pattern: str) -> bool:
    return pattern in known or any(fnmatchcase(name, pattern) for name in known)


def _statements(entry: Entry, content: Entry, plan: Plan) -> Iterator[Statement]:
    """An entry in each of its places, with its methods by name."""
    places = entry["in"]
    if isinstance(places, str):
        if places not in content["places"]:
            raise unknown("name of places", places, content["places"], "config/claims.yaml")
        places = content["places"][places]
    for place in places:
        artefact, dataset, _ = place.split("/")
        groups, rows = content["groups"], plan.rows_of(artefact)
        if "front" in entry and artefact in plan.artefacts:  # a front has the models that a scale has
            rows = list(dict.fromkeys(row.method for row in plan.artefacts[artefact].rows))
        names = {k: entry[k] for k in ("better", "alike", "methods", "peak", "front") if k in entry}
        named = {key: _methods(some, groups, rows) for key, some in names.items()}
        if "than" in entry:
            own = named.get("better", named.get("front", [entry.get("only")]))
            others = [name for name in rows if name not in own]
            named["than"] = _methods(entry["than"], groups, others)
        classes = plan.grid["datasets"].get(dataset, {}).get("classes", ())
        yield Statement({**entry, **named}, place, tuple(classes))


def _methods(written: str | list[str], groups: Entry, rows: list[str]) -> list[str]:
    """The methods that a list, a group, a pattern or a single name means."""
    if isinstance(written, list):
        return written
    if "*" not in written:
        return groups.get(written, [written])
    return [name for name in rows if fnmatchcase(name, written)] or [written]


def runs(plan: Plan, claims: list[Claim]) -> list[str]:
    """The runs whose records the claims need; figures of trainings have none."""
    found = planned_cells(plan, [number for claim in claims for number in claim.accuracies])
    named = dict.fromkeys(run for some in found.values() for cell in some for run in cell.runs)
    return [run for run in named if run in plan.evaluations]


def judge(plan: Plan, claims: list[Claim], results: Path, reports: Path) -> pd.DataFrame:
    """One row per claim: its verdicts on both sources, with the numbers."""
    import pandas as pd  # here: the workflow asks only which records claims need

    printed = Printed(Papers.read().values, plan)
    numbers = [number for claim in claims for number in claim.accuracies]
    measured = Measured(plan, results, reports, numbers)
    rows = []
    for claim in claims:
        theirs, ours = Verdict(claim.tree, printed), Verdict(claim.tree, measured)
        rows.append(
            {
                "id": claim.id,
                "claim": claim.text,
                "source": claim.source,
                "published_verdict": theirs.word("printed", "no number"),
                "published_numbers": theirs.text("not printed"),
                "our_verdict": ours.word("measured", "not measured"),
                "our_numbers": ours.text("not measured") + measured.doubts(claim.accuracies),
                "artefacts": " ".join(claim.artefacts),
                "kind": claim.kind,
            }
        )
    return pd.DataFrame(rows)


def tally(verdicts: Iterable[str]) -> dict[str, int]:
    """How often each verdict was reached, the most frequent first; without "(1 of 2 comparisons)"."""
    return dict(Counter(verdict.partition(" (")[0] for verdict in verdicts).most_common())


def markdown(table: pd.DataFrame, notice: str) -> str:
    claims, controls = (table[table.kind == kind] for kind in ("claim", "control"))
    theirs, ours, checked = (
        ", ".join(f"{word} {count}" for word, count in tally(verdicts).items())
        for verdicts in (claims.published_verdict, claims.our_verdict, controls.our_verdict)
    )
    lines = [
        "# The papers' claims",
        "",
        f"*{in_markdown(notice)}*",
        "",
        f"Published numbers: {theirs}. Ours: {ours}.",
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
    for row in claims.itertuples():
        theirs = f"**{row.published_verdict}**: {in_markdown(row.published_numbers)}"
        ours = f"**{row.our_verdict}**: {in_markdown(row.our_numbers)}"
        lines.append(f"| {in_markdown(f'{row.claim} ({row.source})')} | {theirs} | {ours} |")
    if len(controls):
        lines += ["", "## Controls that the papers lack", "", f"Ours: {checked}.", ""]
        lines += ["| statement | ours |", "|---|---|"]
    for row in controls.itertuples():
        ours = f"**{row.our_verdict}**: {in_markdown(row.our_numbers)}"
        lines.append(f"| {in_markdown(f'{row.claim} ({row.source})')} | {ours} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the papers' claims.")
    parser.add_argument("--claims", type=Path)
    plan, options = reported(parser)
    table = judge(plan, read(plan, options.claims), options.results, options.reports)
    path = options.reports / plan.name / "claims.md"
    write_whole(path, markdown(table, plan.scale["notice"]))
    write_whole(path.with_suffix(".csv"), in_csv(table))
    print(f"the verdicts are at {path}")
