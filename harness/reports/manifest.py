"""The checksums of a scale's reports and of what they were made of: `generalist-bench manifest`.

Git keeps no times: in a clone, tables may look older than the records that they were made from. The
workflow asks `Manifest.state` and tells Snakemake to ignore the times of what is proven to be current.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from harness.core import paths
from harness.core.config import CONFIG, ROOT
from harness.core.files import sha256, write_whole
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan, reported
from harness.grid.robustbench import entries

NAME = "made_of.sha256"  # in the form of `sha256sum`, which can check it too
_REMARK = "# "  # which `sha256sum` skips
# As old as this process, so newer than every report that was there before. Old where there is no Linux.
NOW = "/proc/self/cmdline" if sys.platform == "linux" else os.devnull
CURRENT, CHANGED, UNKNOWN = "current", "changed", "unknown"
_SKEW = 60 * 10**9  # nanoseconds: machines that share a disk may differ by seconds


def contents(plan: Plan) -> dict[str, str]:
    """Report -> a checksum of what it is to show. The page shows something of everything."""
    from harness.papers.claims import read  # pandas, which planning does not need

    shown = {name: _number(_content(plan, artefact)) for name, artefact in plan.artefacts.items()}
    models = {
        name: _number([shown[entry.artefact.name] for entry in found])
        for name, found in entries(plan.artefacts).items()
    }
    judged = dict.fromkeys(name for claim in read(plan) for name in claim.artefacts)
    claims, whole = _number([shown.get(name) for name in judged]), _number(shown)
    others = {"robustbench": _number(models), "claims": claims, "index": whole, "manifest": whole}
    return {**shown, **others}


def _content(plan: Plan, artefact: Artefact) -> tuple:
    """An artefact with its runs and columns, the records behind it, the names of its rows."""
    evaluated = [plan.evaluations[run].id for run in artefact.runs if run in plan.evaluations]
    labels = [plan.label(row.method) for row in artefact.rows]
    return artefact, evaluated, labels, plan.scale.get("notice")


def _number(value: object) -> str:
    return sha256(repr(value).encode())


class Manifest:
    """What a scale's reports were made of when they were last complete."""

    def __init__(self, plan: Plan, reports: Path) -> None:
        path = reports / plan.name / NAME
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        pairs = [line.removeprefix(_REMARK).partition("  ")[::2] for line in lines]
        self._sums = {name: value for value, name in pairs}
        self._now = contents(plan) if lines else {}

    def state(self, report: str, inputs: Iterable[str], outputs: Iterable[str]) -> str:
        """Is a report current, or changed (to be made again)? Unknown: only times can tell.

        A damaged manifest matches no file, and harms nothing.
        """
        if not all(self._holds(name) for name in outputs):
            return UNKNOWN
        if self._sums.get(report) != self._now[report]:
            return CHANGED
        inputs = list(inputs)
        if not all(map(_sum, inputs)):
            return UNKNOWN
        return CURRENT if all(map(self._holds, inputs)) else CHANGED

    def _holds(self, name: str) -> bool:
        return self._sums.get(_name(Path(name)), "") == _sum(name) != ""


@cache
def _sum(name: str) -> str:
    path = Path(name)
    return sha256(path.read_bytes()) if path.is_file() else ""


def write_manifest(plan: Plan, results: Path, reports: Path) -> None:
    """Checksums of sources, then of reports; as remarks, what each report shows."""
    folder = reports / plan.name
    made_of = [CONFIG / "claims.yaml", ROOT / "reports" / "published" / "values.csv"]
    for place in (paths.description, paths.history, paths.trace):
        made_of += [place(results, run) for run in plan.runs]
    made_of += [paths.records(results, wanted.id) for wanted in plan.evaluations.values()]
    made = [path for path in folder.rglob("*") if path.is_file() and path.name != NAME]
    files = sorted(made_of) + sorted(made)
    lines = [f"{sha256(path.read_bytes())}  {_name(path)}\n" for path in files]
    lines += [f"{_REMARK}{number}  {name}\n" for name, number in contents(plan).items()]
    write_whole(folder / NAME, "".join(lines))


def _name(path: Path) -> str:
    """From here, so that a clone finds it too; in full if it lies elsewhere."""
    inside = path.absolute().is_relative_to(Path.cwd())
    return os.path.relpath(path) if inside else str(path.absolute())


def no_future(paths: Iterable[Path]) -> None:
    """Date files from the future now: else what is made of them would be made again for ever."""
    now = time.time_ns()
    for path in paths:
        if path.is_file() and path.stat().st_mtime_ns > now + _SKEW:
            with suppress(PermissionError):  # somebody else's file stays as it is
                os.utime(path, ns=(now, now))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write down what a scale's reports were made of.")
    plan, options = reported(parser)
    write_manifest(plan, options.results, options.reports)
