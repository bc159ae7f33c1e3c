"""Fetch and verify data sets: `generalist-bench fetch cifar10 mnist cifar10-c`.

Prints for each set what was found and where it came from, or what to do. `cifar10-c` means the 15 main
corruptions at all severities, `cifar10-c/fog` one of them, `cifar10-p` the ten sequences. Exit code
2 if something is missing.
"""

import argparse
from collections.abc import Iterator

from harness.core.errors import UserError, expected
from harness.data import corrupted, sources
from harness.data.cache import Stored, digest_of
from harness.data.corrupted import ARCHIVES, expand
from harness.data.sets import SETS


def obtained(name: str) -> Iterator[tuple[str, Stored, str]]:
    """Title, arrays, and the known sha256 of the whole set (empty if not known)."""
    if "/" in name:
        yield *corrupted.obtain(corrupted.parse(name)), ""
    else:
        for split in ("train", "test"):
            stored = sources.obtain(SETS[name], split)
            yield f"{name} {split}", stored, SETS[name].sha256.get(split, "")


def report(title: str, stored: Stored, known: str) -> str:
    """One line about a set; its arrays are read and their checksum is compared."""
    found = digest_of(stored.x, stored.y)
    if stored.sha256 and found != stored.sha256:
        what = f"{title} with the sha256 {stored.sha256[:16]}..."
        remedy = "delete the cache folder to make it again"
        raise expected(what, f"{found[:16]}... in the cache", remedy)
    verified = "as known of the whole set" if found == known else f"{found[:16]}..."
    return f"{title}: {len(stored.y)} images, {stored.source}; sha256: {verified}"


def summary(found: list[tuple[str, Stored, str]]) -> str:
    """One line about the many sets that `cifar10-c` means, each of them checked."""
    for one in found:
        report(*one)
    title, first, _ = found[0]
    images = " or ".join(map(str, sorted({len(stored.y) for _, stored, _ in found})))
    return f"{title.partition('/')[0]}: {len(found)} sets of {images} images, {first.source}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch and verify data sets.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="such as cifar10 or cifar10-c")
    missing, hints = 0, {}
    for argument in parser.parse_args().names:
        names, found = expand(argument), []
        for name in names:
            try:
                found += list(obtained(name))
            except UserError as error:
                missing += 1
                print(f"{name}: MISSING: {error}", flush=True)
            archive = ARCHIVES.get(name.partition("/")[0])
            if archive is not None and not archive.folder().exists():
                hints[archive.name] = archive.remedy()
        if len(names) > 1 and found:
            print(summary(found), flush=True)
        else:
            for one in found:
                print(report(*one), flush=True)
    for hint in hints.values():
        print(hint)
    if missing:
        raise expected("every set that was asked for", f"{missing} missing", "see the lines above")
