"""What a scale's reports were made of, by checksum: `python -m harness manifest --scale lite`.

Snakemake reads times, and these can lie. Git keeps none: in a clone, tables may look older than the
records that they were made from. A clock that jumps dates files in 1970, or in the future. `settle`
says what the checksums know in the only words that Snakemake reads: reports are no older than what they
were made of where every checksum holds, a source that changed since is new, whatever its date, and a
report is old if the config now asks for another one than was made: other rows, columns, or words.
`no_future` ends what would never settle: a file from the future is newer than all that is made of it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from pathlib import Path

from harness.core import paths
from harness.core.config import CONFIG, ROOT
from harness.core.files import sha256, write_whole
from harness.grid.artefacts import Artefact
from harness.grid.entries import entries
from harness.grid.plan import Plan, reported

NAME = "made_of.sha256"  # in the form of `sha256sum`, which can check it too
_REMARK = "# "  # which `sha256sum` passes over
_LONG_AGO = 10**9  # in 1970, but not at 0, which Snakemake takes for no time at all
_SKEW = 60 * 10**9  # nanoseconds: machines that share a disk may differ by seconds


def asked(plan: Plan) -> dict[str, str]:
    """Report -> a number for what it is to show. Claims and page may show something of all."""
    shown = {name: _number(_contents(plan, artefact)) for name, artefact in plan.artefacts.items()}
    whole = _number(shown)
    models = {
        name: _number([shown[entry.artefact.name] for entry in found])
        for name, found in entries(plan).items()
    }
    return {**shown, **models, "claims": whole, "index": whole}


def _contents(plan: Plan, artefact: Artefact) -> tuple:
    """An artefact, the records behind it, and what its rows and columns are called."""
    evaluated = [plan.evaluations[run].id for run in artefact.runs if run in plan.evaluations]
    labels = [plan.label(row.method) for row in artefact.rows]
    columns = [plan.columns.column(name, artefact.protocol) for name in artefact.columns]
    return artefact, evaluated, labels, columns, plan.scale.get("notice")


def _number(value: object) -> str:
    return sha256(repr(value).encode())


def write_manifest(plan: Plan, results: Path, reports: Path) -> None:
    """Checksums of sources, then of reports; as remarks, what was asked, and the sum of all above."""
    folder = reports / plan.name
    made = [path for path in folder.rglob("*") if path.is_file() and path.name != NAME]
    files = sorted(sources_of(plan, results)) + sorted(made)
    lines = [f"{sha256(path.read_bytes())}  {_name(path)}\n" for path in files]
    stale = plan.artefacts.keys() & {path.stem for path in made if _time(path) == _LONG_AGO}
    answered = {name: number for name, number in asked(plan).items() if name not in stale}
    lines += [f"{_REMARK}{number}  {name}\n" for name, number in answered.items()]
    text = "".join(lines)
    write_whole(folder / NAME, f"{text}{_REMARK}{sha256(text.encode())}  {NAME}\n")


def sources_of(plan: Plan, results: Path) -> list[Path]:
    """All that a scale's reports are made of."""
    found = [CONFIG / "claims.yaml", ROOT / "reports" / "published" / "values.csv"]
    for run in plan.runs:
        found += [place(results, run) for place in (paths.description, paths.history, paths.trace)]
    return found + [paths.records(results, wanted.id) for wanted in plan.evaluations.values()]


def _name(path: Path) -> str:
    """From here, so that a clone finds it too; in full if it lies elsewhere."""
    inside = path.absolute().is_relative_to(Path.cwd())
    return os.path.relpath(path) if inside else str(path.absolute())


def settle(plan: Plan, reports: Path) -> None:
    """Let times say what the checksums know. A damaged manifest knows nothing, and harms nothing."""
    folder = reports / plan.name
    sums, known = _read(folder / NAME)
    if not sums or not all(path.is_file() for path in sums):
        return
    changed = {path for path, value in sums.items() if sha256(path.read_bytes()) != value}
    made = [path for path in sums if path.is_relative_to(folder)]
    sources = sums.keys() - made
    for path in sources & changed:
        if _time(path) <= _time(folder / NAME):  # else its date tells already
            os.utime(path)
    newest = max(map(_time, sources))
    for path in [*made, folder / NAME]:
        if not changed and _time(path) < newest:
            os.utime(path, ns=(newest, newest))
    wanted = asked(plan)
    for path in [path for path in made if path not in changed]:  # else it was made again already
        if wanted.get(path.stem) != known.get(path.stem):
            os.utime(path, ns=(_LONG_AGO, _LONG_AGO))


def _read(manifest: Path) -> tuple[dict[Path, str], dict[str, str]]:
    """The checksums, and what was asked; nothing of a manifest that is not what was written."""
    text = manifest.read_text(errors="replace") if manifest.exists() else ""
    above, _, last = text.rpartition(_REMARK)
    if last != f"{sha256(above.encode())}  {NAME}\n":
        return {}, {}
    sums, known = {}, {}
    for line in above.splitlines():
        value, _, name = line.removeprefix(_REMARK).partition("  ")
        if line.startswith(_REMARK):
            known[name] = value
        else:
            sums[Path(name)] = value
    return sums, known


def no_future(paths: Iterable[Path]) -> None:
    """Files dated later than now are dated now: what is made of them is made once, not for ever."""
    now = time.time_ns()
    for path in paths:
        if path.is_file() and _time(path) > now + _SKEW:
            os.utime(path, ns=(now, now))


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def main() -> None:
    parser = argparse.ArgumentParser(description="Write down what a scale's reports were made of.")
    plan, options = reported(parser)
    write_manifest(plan, options.results, options.reports)
