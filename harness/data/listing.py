"""The data sets that `--data` may name: `generalist-bench data`."""

import argparse

from harness.data import count
from harness.data.sets import SETS, DataSet


def origin(entry: DataSet) -> str:
    if entry.embedded is not None:
        return "embedded"
    places = ["official address"] if entry.official is not None else []
    places += [f"npm {entry.mirror.package}"] if entry.mirror is not None else []
    return " or ".join(places) or "files that you bring (docs/data.md)"


def line(entry: DataSet) -> str:
    shape = "x".join(map(str, (entry.channels, *entry.size)))
    images = f"{count(entry.name, 'test'):,}"
    return f"{entry.name:13} {entry.classes:7} {shape:>10} {images:>12}  {origin(entry)}"


def main() -> None:
    argparse.ArgumentParser(description="List the data sets.").parse_args()
    print(f"{'data set':13} {'classes':>7} {'images':>10} {'for testing':>12}  from")
    for entry in SETS.values():
        print(line(entry))
    print("\n`generalist-bench fetch NAME` downloads one and compares its checksum.")
