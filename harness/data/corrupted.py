"""Corrupted sets by name: `<base>-c/<corruption>/<severity>` and `<base>-p/<sequence>`.

If the official archive is in the data folder, unpacked or as the tar (whose checksum decides), it is
used; otherwise the set is made from the clean test images, and its source and title say so.
"""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.core.errors import expected, unknown
from harness.data import sources
from harness.data.cache import Arrays, Stored, Stream, data_folder, keep, lock, mapped, slot, state_of
from harness.data.corruptions import CORRUPTIONS, MAIN, REVISION, SEVERITIES, corrupt
from harness.data.corruptions.sequences import FRAMES, film
from harness.data.corruptions.textures import frost_source
from harness.data.decoders import check_sum, unpack
from harness.data.pictures import read_class_folders
from harness.data.sets import SETS

_SEED = 0
_CHUNK = 100  # images: bounds the memory


@dataclass(frozen=True)
class Archive:
    """An official set of corrupted images: a folder of arrays, or of folders of image files."""

    name: str
    checksum: str  # as Zenodo says (md5), or TensorFlow Datasets, which measured it too (sha256)
    record: int  # of zenodo.org

    def folder(self) -> Path:
        return data_folder() / self.name

    def remedy(self) -> str:
        return (
            f"for the official {self.name}: put {self.name}.tar ({self.checksum}, from "
            f"https://zenodo.org/records/{self.record}) in {data_folder()}"
        )

    def found(self) -> bool:
        """Is the folder there? A tar next to it is unpacked first."""
        tar = self.folder().with_name(f"{self.name}.tar")
        if self.folder().exists() or not tar.exists():
            return self.folder().exists()
        with lock(self.folder()):
            if not self.folder().exists():
                check_sum(tar, self.checksum)
                aside = self.folder().with_name(f".{self.name}.unpacked")
                shutil.rmtree(aside, ignore_errors=True)
                try:
                    unpack(tar, aside)
                    inner = aside / self.name  # the tar holds the folder itself
                    (inner if inner.is_dir() else aside).rename(self.folder())
                finally:
                    shutil.rmtree(aside, ignore_errors=True)
        return True


ARCHIVES = {
    "cifar10-c": Archive(
        "CIFAR-10-C", "sha256:c72763e101c723b7c507b96205f7e938912a5d587376173b825850cf3cb876a7", 2535967
    ),
    "cifar10-p": Archive("CIFAR-10-P", "md5:125d6775afc5846ea84584d7524dedff", 2535967),
    "cifar100-c": Archive(
        "CIFAR-100-C",
        "sha256:30ee6543a1bfd049fa33834b7c1ada301e7064b7fbe8fc38340eb8b62ced4b33",
        3555552,
    ),
    "tinyimagenet-c": Archive("Tiny-ImageNet-C", "md5:f9c9a9dbdc11469f0b850190f7ad8be1", 2536630),
}


@dataclass(frozen=True)
class Corrupted:
    """A corrupted set's name, parsed."""

    base: str
    kind: str  # c or p
    corruption: str
    severity: int | None

    @property
    def family(self) -> str:
        return f"{self.base}-{self.kind}"

    @property
    def frames(self) -> int:
        return FRAMES[self.corruption] if self.kind == "p" else 1

    def title(self, generated: bool) -> str:
        names = [self.family + ("(generated)" if generated else ""), self.corruption]
        return "/".join(names if self.severity is None else [*names, str(self.severity)])


def parse(name: str) -> Corrupted:
    family, _, rest = name.partition("/")
    base, dash, kind = family.rpartition("-")
    if not dash or kind not in ("c", "p"):
        raise expected("<set>-c/<corruption>/<severity> or <set>-p/<sequence>", name, "name it so")
    if base not in SETS:
        raise unknown("data set", base, SETS, "harness/data/sets.py")
    corruption, _, severity = rest.partition("/")
    known = CORRUPTIONS if kind == "c" else FRAMES
    if corruption not in known:
        raise unknown("corruption" if kind == "c" else "sequence", corruption, known, name)
    if kind == "p" and not severity:
        return Corrupted(base, kind, corruption, None)
    if kind == "c" and severity in map(str, SEVERITIES):
        return Corrupted(base, kind, corruption, int(severity))
    wanted = "a severity in 1..5" if kind == "c" else "no severity"
    raise expected(f"{wanted} in {name}", severity or "none", "such as cifar10-c/fog/3")


def expand(name: str) -> list[str]:
    """The sets that a name stands for: `cifar10-c` is the 15 main corruptions at 5 severities."""
    family, _, rest = name.partition("/")
    if family in SETS and not rest:
        return [name]
    if not family.endswith(("-c", "-p")):
        raise unknown("data set", name, SETS, "harness/data/sets.py")
    if family.endswith("-p"):
        names = [name] if rest else [f"{family}/{sequence}" for sequence in FRAMES]
    elif "/" in rest:
        names = [name]
    else:
        names = [f"{family}/{c}/{s}" for c in ([rest] if rest else MAIN) for s in SEVERITIES]
    for one in names:
        parse(one)
    return names


def obtain(wanted: Corrupted, first: int | None = None) -> tuple[str, Stored]:
    """The set, after its title, which says whether we made it; if so, of the `first` clean images."""
    archive = ARCHIVES.get(wanted.family)
    if archive is None or not archive.found():
        return wanted.title(generated=True), _generated(wanted, first)
    read = _read_pictures if wanted.base == "tinyimagenet" else _read_arrays
    return wanted.title(generated=False), read(wanted, archive)


def _read_arrays(wanted: Corrupted, archive: Archive) -> Stored:
    """CIFAR's layout, mapped from its files: (5 x n, h, w, c) by severity, or (n, T, h, w, c)."""
    file = archive.folder() / f"{wanted.corruption}.npy"
    files, x = (file, archive.folder() / "labels.npy"), _array(file)
    entry = SETS[wanted.base]
    image = (*entry.size, entry.channels)
    if wanted.kind == "p":
        clean_y = sources.obtain(entry, "test").y
        shape = (len(clean_y), wanted.frames, *image)
        if x.shape != shape or x.dtype != np.uint8:
            remedy = f"fetch it, or the whole of {wanted.base}, again"
            what = f"uint8 {shape} in {file}, frames of the clean test set"
            raise expected(what, f"{x.dtype} {x.shape}", remedy)
        x, y = x.reshape(-1, *image), np.repeat(clean_y, wanted.frames)
    else:
        assert wanted.severity is not None
        labels = _array(files[1])
        if x.shape != (len(labels), *image) or len(x) % len(SEVERITIES):
            raise expected(f"{(len(labels), *image)} in {file}", x.shape, "fetch it again")
        each = len(x) // len(SEVERITIES)
        rows = slice((wanted.severity - 1) * each, wanted.severity * each)
        x, y = x[rows], np.array(labels[rows], dtype=np.int64)
    x = x.transpose(0, 3, 1, 2)
    if wanted.kind == "c":
        sources.checked(entry, "test", (x, y))
    return Stored(x, y, f"official {archive.name}", "", files, state_of(files))


def _array(file: Path) -> np.ndarray:
    try:
        return mapped(file)
    except (OSError, ValueError, EOFError) as error:
        found, remedy = f"none ({error})", "unpack its archive again"
        raise expected(f"a whole array in {file}", found, remedy) from error


def _read_pictures(wanted: Corrupted, archive: Archive) -> Stored:
    """TinyImageNet's layout: <corruption>/<severity>/<class>/*.JPEG."""
    entry = SETS[wanted.base]
    folder = archive.folder() / wanted.corruption / str(wanted.severity)
    if not folder.is_dir():
        raise expected(f"images in {folder}", "no such folder", "unpack its archive again")
    place = slot(wanted.title(generated=False), "test", f"local-{folder.stat().st_mtime_ns:x}")

    def arrays() -> Arrays:
        return sources.checked(entry, "test", read_class_folders([folder], entry.size[0]))

    return keep(place, f"official {archive.name}", arrays)


def _generated(wanted: Corrupted, first: int | None) -> Stored:
    clean = sources.obtain(SETS[wanted.base], "test")
    count = len(clean.y) if first is None else min(first, len(clean.y))
    frost = f", frost {frost_source()}" if wanted.corruption == "frost" else ""
    later = f", revision {REVISION}" if REVISION > 1 else ""
    origin = f"{sources.GENERATED}{wanted.base}: {clean.source}; seed {_SEED}{frost}{later})"
    key = hashlib.sha256(repr((clean.sha256, REVISION, _SEED, frost)).encode()).hexdigest()[:12]
    place = slot(wanted.title(generated=True), "test", key)
    if count < len(clean.y) and not (place / "about.json").exists():
        place, origin = place.with_name(f"{place.name}-first{count}"), f"{origin}, the first {count}"

    def chunks() -> Iterator[np.ndarray]:
        for first in range(0, count, _CHUNK):
            x = np.ascontiguousarray(clean.x[first : min(first + _CHUNK, count)])
            if wanted.severity is None:
                yield film(x, wanted.corruption, _SEED, first).reshape(-1, *x.shape[1:])
            else:
                yield corrupt(x, wanted.corruption, wanted.severity, _SEED, first)

    shape = (count * wanted.frames, *clean.x.shape[1:])
    arrays = Stream(shape, chunks), np.repeat(clean.y[:count], wanted.frames)
    return keep(place, origin, lambda: arrays)
