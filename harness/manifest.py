"""What a scale's reports were made of, by checksum: `python -m harness.manifest --scale lite`.

Git keeps no times: in a clone, tables may look older than the records that they were made from, and
Snakemake would make them again. Where every checksum still holds, the reports are up to date, and
`settle` says so in the only words that Snakemake reads. Where one does not, it does nothing.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from harness import paths
from harness.config import CONFIG, ROOT
from harness.errors import run_command
from harness.files import sha256, write_whole
from harness.plan import Plan, reported

NAME = "made_of.sha256"  # in the form of `sha256sum`, which can check it too


def write_manifest(plan: Plan, results: Path, reports: Path) -> None:
    folder = reports / plan.name
    own = (paths.description, paths.history, paths.trace)
    sources = [place(results, run) for run in plan.runs for place in own]
    sources += [paths.records(results, wanted.id) for wanted in plan.evaluations.values()]
    sources += [CONFIG / "claims.yaml", ROOT / "reports" / "published" / "values.csv"]
    made = [path for path in folder.rglob("*") if path.is_file() and path.name != NAME]
    lines = [
        f"{sha256(path.read_bytes())}  {os.path.relpath(path)}\n"
        for path in sorted(sources) + sorted(made)
    ]
    write_whole(folder / NAME, "".join(lines))


def settle(folder: Path) -> None:
    """Make up-to-date reports no older than what they were made of."""
    if not (folder / NAME).exists():
        return
    lines = (folder / NAME).read_text().splitlines()
    sums = {Path(name): value for value, _, name in (line.partition("  ") for line in lines)}
    if not all(path.is_file() for path in sums):
        return
    made = [path for path in sums if path.is_relative_to(folder)] + [folder / NAME]
    newest = max(path.stat().st_mtime_ns for path in sums.keys() - made)
    late = [path for path in made if path.stat().st_mtime_ns < newest]
    if late and all(sha256(path.read_bytes()) == sums[path] for path in sums):
        for path in late:
            os.utime(path, ns=(newest, newest))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write down what a scale's reports were made of.")
    plan, options = reported(parser)
    write_manifest(plan, options.results, options.reports)


if __name__ == "__main__":
    run_command(main)
