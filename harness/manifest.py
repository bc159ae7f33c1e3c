"""What a scale's reports were made of, by checksum: `python -m harness.manifest --scale lite`.

Snakemake reads times, and these can lie. Git keeps none: in a clone, tables may look older than the
records that they were made from. A clock that jumps dates files in 1970, or in the future. `settle`
says what the checksums know in the only words that Snakemake reads: reports are no older than what they
were made of where every checksum holds, and a source that changed since is new, whatever its date. A
report is old if the config asks more of it than was known; if it asks for less, any may show too much.
`no_future` ends what would never settle: a file from the future is newer than all that is made of it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Set
from pathlib import Path

from harness import paths
from harness.config import CONFIG, ROOT
from harness.entries import entries
from harness.errors import run_command
from harness.files import sha256, write_whole
from harness.plan import Plan, reported

NAME = "made_of.sha256"  # in the form of `sha256sum`, which can check it too
_LONG_AGO = 10**9  # in 1970, but not at 0, which Snakemake takes for no time at all
_SKEW = 60 * 10**9  # nanoseconds: machines that share a disk may differ by seconds


def sources_of(plan: Plan, results: Path) -> list[Path]:
    """All that a scale's reports are made of."""
    found = [path for run in plan.runs for path in _sources(plan, results, run)]
    return [*found, CONFIG / "claims.yaml", ROOT / "reports" / "published" / "values.csv"]


def _sources(plan: Plan, results: Path, run: str) -> list[Path]:
    found = [place(results, run) for place in (paths.description, paths.history, paths.trace)]
    evaluated = plan.evaluations.get(run)  # of a model that only begins others nothing is asked
    return [*found, paths.records(results, evaluated.id)] if evaluated else found


def write_manifest(plan: Plan, results: Path, reports: Path) -> None:
    folder, sources = reports / plan.name, sources_of(plan, results)
    made = [path for path in folder.rglob("*") if path.is_file() and path.name != NAME]
    lines = [
        f"{sha256(path.read_bytes())}  {_name(path)}\n" for path in sorted(sources) + sorted(made)
    ]
    write_whole(folder / NAME, "".join(lines))


def _name(path: Path) -> str:
    """From here, so that a clone finds it too; in full if it lies elsewhere."""
    inside = path.absolute().is_relative_to(Path.cwd())
    return os.path.relpath(path) if inside else str(path.absolute())


def settle(plan: Plan, results: Path, reports: Path) -> None:
    """Let times say what the checksums know. A damaged manifest knows nothing, and harms nothing."""
    folder = reports / plan.name
    if not (folder / NAME).exists():
        return
    lines = (folder / NAME).read_text(errors="replace").splitlines()
    sums = {Path(name): value for value, _, name in (line.partition("  ") for line in lines)}
    made = [path for path in sums if path.is_relative_to(folder)]
    sources = sums.keys() - made
    if not made or not sources or not all(_is_file(path) for path in sums):
        return
    for path in [path for path in sources if sha256(path.read_bytes()) != sums[path]]:
        if _time(path) <= _time(folder / NAME):  # else its date tells already
            os.utime(path)
    wanted = {Path(_name(path)) for path in sources_of(plan, results)}
    if wanted >= sources:
        newest = max(map(_time, sources))
        late = [path for path in [*made, folder / NAME] if _time(path) < newest]
        if late and all(sha256(path.read_bytes()) == sums[path] for path in sums):
            for path in late:
                os.utime(path, ns=(newest, newest))
    if wanted != sources:
        settled = _settled(plan, results, sources) if wanted >= sources else set()
        for path in [path for path in made if path.stem not in settled]:
            if _time(path) <= _time(folder / NAME):  # else it was made again already
                os.utime(path, ns=(_LONG_AGO, _LONG_AGO))


def _settled(plan: Plan, results: Path, sources: Set[Path]) -> set[str]:
    """Names of reports that are made of known sources only. Claims and page are made of all."""
    made_of = {name: artefact.runs for name, artefact in plan.artefacts.items()}
    made_of |= {name: [entry.run for entry in found] for name, found in entries(plan).items()}
    return {
        name
        for name, runs in made_of.items()
        if sources >= {Path(_name(path)) for run in runs for path in _sources(plan, results, run)}
    }


def no_future(paths: Iterable[Path]) -> None:
    """Files dated later than now are dated now: what is made of them is made once, not for ever."""
    now = time.time_ns()
    for path in paths:
        if _is_file(path) and _time(path) > now + _SKEW:
            os.utime(path, ns=(now, now))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name out of a damaged manifest
        return False


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def main() -> None:
    parser = argparse.ArgumentParser(description="Write down what a scale's reports were made of.")
    plan, options = reported(parser)
    write_manifest(plan, options.results, options.reports)


if __name__ == "__main__":
    run_command(main)
