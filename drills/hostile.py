"""Malicious inputs. Each must be refused with one sentence; nothing in it is executed, and nothing is
written outside its folder."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import yaml

from drills import Attempt, LostError, Try, demand
from drills.commands import check_sentence, command, said, sentence, snakemake, snakemake_words
from drills.ground import TABLE, Ground
from harness.core import paths
from harness.core.config import read_claims, read_yaml
from harness.core.errors import UserError
from harness.core.files import write_with_checksum
from harness.data import load
from harness.data.cache import chunks_of
from harness.data.decoders import read_cifar_batches, read_idx, unpack
from harness.data.pictures import read_class_folders

_MARK = "executed"  # a file that only executed input could make


class Bomb:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {_MARK}",)


def refused(act: Callable[[], object]) -> None:
    try:
        act()
    except UserError as error:
        check_sentence(str(error))
        return
    raise LostError("hostile input was accepted")


def names(random: Random) -> str:
    """A name with a meaning to a shell, a path or a line reader."""
    tricks = ["; touch X", "$(touch X)", "`touch X`", "'; touch X; '", '"; touch X; "', "\ntouch X\n"]
    tricks += ["../../X", "/tmp/X", "a b", "nt\n", "{X}", "*", "-X", "..", "|touch X", "&touch X", "é"]
    return random.choice(["", "nt", "at"]) + random.choice(tricks).replace("X", _MARK)


def yaml_tags(ground: Ground, this: Try) -> None:
    tag = this.random.choice(
        [
            f'!!python/object/apply:os.system ["touch {_MARK}"]',
            f'!!python/object/new:os.system ["touch {_MARK}"]',
            "!!python/name:os.system ''",
            "!!python/module:os ''",
            "!!binary x",
            "\x00",
        ]
    )
    path = this.folder / "evil.yaml"
    path.write_text(f"{ground.grid.read_text()}\nextra: {tag}\n")
    sentence(command("harness", "plan", "--runs", "--grid", str(path), cwd=this.folder))
    path.write_text(f"notice: {tag}\n")  # as a scale, or as claims
    refused(lambda: read_yaml(path))
    refused(lambda: read_claims(path))


def names_in_a_grid(ground: Ground, this: Try) -> None:
    content, name = yaml.safe_load(ground.grid.read_text()), names(this.random)
    section = this.random.choice(["methods", "artefacts", "datasets", "networks"])
    content[section][name] = next(iter(content[section].values()))
    path = this.folder / "evil.yaml"
    path.write_text(yaml.safe_dump(content))
    sentence(command("harness", "plan", "--runs", "--grid", str(path), cwd=this.folder))


def names_on_the_command_line(ground: Ground, this: Try) -> None:
    name = names(this.random)
    for words in (["train", f"--run={name}"], ["evaluate", f"--run={name}"]):
        sentence(ground.run(*words, cwd=this.folder))
    common = ["--grid", str(ground.grid), "--scale", "ci"]
    sentence(command("harness", "tables", f"--artefact={name}", *common, cwd=this.folder))
    sentence(command("harness", "plan", f"--scale={name}", "--runs", cwd=this.folder))
    sentence(command("harness", "fetch", "--", name, cwd=this.folder))


def targets(ground: Ground, this: Try) -> None:
    """Targets and config values: Snakemake must refuse them and run nothing."""
    name = names(this.random)
    patterns = ["{}", "reports/ci/tables/{}.csv", "results/data/{}.txt", "results/models/{}/run.json"]
    target = this.random.choice(patterns).replace("{}", name)
    done = snakemake("--", target, cwd=this.folder, grid=ground.grid)
    demand(done.returncode != 0, f"{target!r} was made: {said(done)}")
    words = snakemake_words(TABLE, grid=ground.grid)[:-1]
    done = command(*words, f"device=cpu{name}", cwd=this.folder)
    demand(done.returncode != 0, f"the device {name!r} was taken: {said(done)}")


def pickles(ground: Ground, this: Try) -> None:
    """In records, in a shard, in a checkpoint, in a batch of CIFAR-10."""
    folder, run = ground.copy(this.folder / "copy"), ground.run_of("nt")
    record = next((folder / "results" / "records").glob(f"{run.id}-*.npz"))
    np.savez(record, about=np.array([Bomb()], dtype=object))
    sentence(ground.make_table(folder))
    record.unlink()
    shard = this.random.choice(sorted((folder / "results" / "records" / run.id).glob("*/*.npz")))
    np.savez(shard, about=np.array([Bomb()], dtype=object))
    sentence(ground.run("evaluate", "--run", run.id, cwd=folder))
    at = ground.run_of("at").id
    write_with_checksum(
        paths.checkpoint(folder / "results", at), pickle.dumps({"run": at, "x": Bomb()})
    )
    sentence(ground.run("train", "--run", at, cwd=folder))
    batch = this.folder / "data_batch_1"
    batch.write_bytes(pickle.dumps({"data": Bomb(), "labels": [0]}))
    refused(lambda: read_cifar_batches([batch], "labels"))


def archives(ground: Ground, this: Try) -> None:
    """Members outside the folder, links, devices; a zip with the name of a tar."""
    path, inside = this.folder / "evil.tar", this.folder / "inside"
    kind = this.random.choice(["..", "absolute", "symlink", "hardlink", "device", "zip"])
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"../{_MARK}", "x")
    else:
        with tarfile.open(path, "w") as tar:
            entry = tarfile.TarInfo(
                {"..": f"a/../../{_MARK}", "absolute": f"/tmp/{_MARK}"}.get(kind, "a")
            )
            entry.type = {
                "symlink": tarfile.SYMTYPE,
                "hardlink": tarfile.LNKTYPE,
                "device": tarfile.CHRTYPE,
            }.get(kind, tarfile.REGTYPE)
            entry.linkname = "/etc/passwd"
            tar.addfile(entry, io.BytesIO())
    refused(lambda: unpack(path, inside))
    demand(not inside.exists(), "half of an archive was unpacked")


def headers(ground: Ground, this: Try) -> None:
    """Headers that announce more data than fits in memory."""
    count = this.random.randint(2**28, 2**31 - 1)
    idx = this.folder / "images"
    idx.write_bytes(struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + bytes(100))
    refused(lambda: read_idx([idx, idx]))
    os.environ["GENERALIST_CACHE"] = str(this.folder / "cache")
    try:
        load("digits-c/fog/3", "test")
        (array,) = (this.folder / "cache").glob("*/x.npy")
        with array.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (count, 1, 8, 8)}
            np.lib.format.write_array_header_1_0(file, header)
        refused(lambda: load("digits-c/fog/3", "test"))
    finally:
        del os.environ["GENERALIST_CACHE"]
    picture = this.folder / "pictures" / "class" / "1.png"
    picture.parent.mkdir(parents=True)
    side = this.random.randint(2**15, 2**30)
    ihdr = struct.pack(">4s2I5B", b"IHDR", side, side, 8, 2, 0, 0, 0)
    checksum = struct.pack(">I", zlib.crc32(ihdr))
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + ihdr + checksum)
    refused(lambda: list(chunks_of(read_class_folders([this.folder / "pictures"], 32)[0])))


CASES = {
    "tags in YAML": yaml_tags,
    "names in a grid": names_in_a_grid,
    "names on a command line": names_on_the_command_line,
    "names of targets": targets,
    "pickles": pickles,
    "archives": archives,
    "headers": headers,
}


def inputs(ground: Ground) -> Attempt:
    """hostile inputs: configs, names, pickles, archives, headers"""
    demand(ground.built.is_dir() and ground.zygote, "nothing to harm")

    def attempt(this: Try) -> str:
        kind = list(CASES)[this.number % len(CASES)]
        own, before = Try(this.number, this.random, this.folder / "own"), outside(this.folder)
        own.folder.mkdir()
        CASES[kind](ground, own)
        found = written_elsewhere(this.folder)
        demand(not found, f"executed, or written where it does not belong: {found}")
        demand(outside(this.folder) == before, "something was written outside")
        return f"{kind} refused"

    return attempt


def written_elsewhere(folder: Path) -> list[Path]:
    """The marks of executed input, and of names that led out of a folder."""
    marks = [*folder.rglob(f"*{_MARK}*"), Path("/tmp", _MARK), Path.cwd() / _MARK]
    return [path for path in marks if path.exists() and path.suffix != ".log"]


def outside(folder: Path) -> set[str]:
    return {path.name for place in (folder, folder.parent) for path in place.iterdir()} - {"own"}
