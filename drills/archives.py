"""Record archives made to harm: few bytes that unpack to gigabytes, sizes that are lies, pickles,
members that nobody asked for. Each is refused, or what is asked for is right; memory stays small."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from drills import Attempt, Try, demand
from drills.commands import ENVIRONMENT, Done, said, sentence
from drills.ground import TABLE, Ground
from drills.hostile import Bomb, outside, written_elsewhere

_BOMB = 3 * 10**9  # bytes that 3 MB unpack to
_MOST = 1.5e9  # bytes of memory; torch itself takes 0.6e9
_STORED, _DEFLATED, _LZMA = 0, 8, 14
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Member:
    """A member of a zip as it is written, true or not."""

    name: str
    stream: bytes
    size: int  # unpacked, as the directory says
    checksum: int = 0
    method: int = _DEFLATED


def zipped(members: list[Member]) -> bytes:
    """A zip of these members, whatever they say."""
    content, directory = b"", b""
    for one in members:
        name = one.name.encode()
        sizes = (one.checksum, len(one.stream), one.size, len(name), 0)
        common = struct.pack("<5H3I2H", 20, 0, one.method, 0, 33, *sizes)
        directory += b"PK\1\2" + struct.pack("<H", 20) + common
        directory += struct.pack("<3H2I", 0, 0, 0, 0, len(content)) + name
        content += b"PK\3\4" + common + name + one.stream
    number = min(len(members), 2**16 - 1)
    end = struct.pack("<4H2IH", 0, 0, number, number, len(directory), len(content), 0)
    return content + directory + b"PK\5\6" + end


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape: tuple[int, ...], kind: str = "|b1") -> bytes:
    buffer = io.BytesIO()
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, about)
    return buffer.getvalue()


def packed(name: str, content: bytes) -> Member:
    """An honest member."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    stream = deflate.compress(content) + deflate.flush()
    return Member(f"{name}.npy", stream, len(content), zlib.crc32(content))


def honest(arrays: Arrays) -> list[Member]:
    return [packed(name, npy(array)) for name, array in arrays.items()]


def swollen(name: str, start: bytes, size: int | None = None) -> Member:
    """A member that goes on with 3 GB of zeros after its start; `size` is what the directory says."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    stream = deflate.compress(start) + deflate.flush(zlib.Z_FULL_FLUSH)
    block = deflate.compress(bytes(2**20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    stream += block * (_BOMB // 2**20) + deflate.flush()
    whole = len(start) + _BOMB // 2**20 * 2**20
    return Member(f"{name}.npy", stream, whole if size is None else size)


def _instead(arrays: Arrays, member: Member) -> bytes:
    """The archive with one member in place of the one of its name."""
    return zipped([member if one.name == member.name else one for one in honest(arrays)])


def bomb(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, swollen(name, header((_BOMB,))))


def bomb_of_text(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, swollen("about", header((_BOMB,), "|u1")))


def lying_directory(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, swollen(name, header((_BOMB,)), len(npy(arrays[name]))))


def lying_header(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, packed(name, header((10**12,)) + bytes(100)))


def negative_shape(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, swollen(name, header((-1,))))


def other_numbers(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, packed(name, npy(arrays[name].astype(np.float64))))


def other_shape(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, packed(name, npy(arrays[name][:, None])))


def fewer_images(arrays: Arrays, name: str) -> bytes:
    return _instead(arrays, packed(name, npy(arrays[name][:-1])))


def pickled(arrays: Arrays, name: str) -> bytes:
    start = header((1,), "|O")
    return _instead(arrays, packed(name, start + pickle.dumps(np.array([Bomb()], object), protocol=2)))


def another_compression(arrays: Arrays, name: str) -> bytes:
    """zipfile cannot bound what one step of it unpacks."""
    member = swollen(name, header((_BOMB,)))
    return _instead(arrays, Member(member.name, member.stream, 200, method=_LZMA))


def same_name_twice(arrays: Arrays, name: str) -> bytes:
    return zipped([*honest(arrays), swollen(name, header((_BOMB,)))])


def many_members(arrays: Arrays, name: str) -> bytes:
    others = [packed(f"{number}.correct", npy(np.ones(1, bool))) for number in range(20_000)]
    return zipped([*honest(arrays), *others])


def deep_text(arrays: Arrays, name: str) -> bytes:
    text = b'{"passes": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    return _instead(arrays, packed("about", npy(np.frombuffer(text, np.uint8))))


def extra_member(arrays: Arrays, name: str) -> bytes:
    return zipped([swollen("extra.correct", header((_BOMB,))), *honest(arrays)])


def paths_as_names(arrays: Arrays, name: str) -> bytes:
    names = ["../executed", "/tmp/executed", "a/../../executed", "..\\executed", "C:\\executed"]
    return zipped([*(packed(one, npy(np.ones(1))) for one in names), *honest(arrays)])


REFUSED: list[Callable[[Arrays, str], bytes]] = [
    bomb,
    bomb_of_text,
    lying_directory,
    lying_header,
    negative_shape,
    other_numbers,
    other_shape,
    fewer_images,
    pickled,
    another_compression,
    same_name_twice,
    many_members,
    deep_text,
]
HARMLESS = [extra_member, paths_as_names]  # what is asked for is as it was
KINDS = {make.__name__.replace("_", " "): make for make in [*REFUSED, *HARMLESS]}


def measured(*words: str, cwd: Path) -> tuple[Done, int]:
    """A command, and the bytes of memory that it took at most."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        environment = {**os.environ, **ENVIRONMENT}
        words = (sys.executable, "-m", *words)
        job = subprocess.Popen(words, cwd=cwd, env=environment, stdout=out, stderr=err)
        _, status, used = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Done(words, job.returncode, out.read(), err.read()), 1024 * used.ru_maxrss


def _files(ground: Ground, folder: Path, random: Random) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A record file and a shard, each with the command that reads it."""
    common = ("--grid", str(ground.grid), "--scale", "ci")
    records = folder / "results" / "records"
    yield random.choice(sorted(records.glob("*.npz"))), ("tables", "--artefact", TABLE, *common)
    for path in records.glob("*.npz"):
        path.unlink()
    shard = random.choice(sorted(records.glob("*/*/*.npz")))
    yield shard, ("evaluate", "--run", shard.parents[1].name, *common)


def records(ground: Ground) -> Attempt:
    """hostile record archives: bombs, lies about sizes, pickles, members that nobody asked for"""
    demand(ground.built.is_dir() and ground.zygote, "nothing to harm")

    def attempt(this: Try) -> str:
        kind = list(KINDS)[this.number % len(KINDS)]
        own, before = ground.copy(this.folder / "own"), outside(this.folder)
        for path, words in _files(ground, own, this.random):
            with np.load(path) as whole:
                arrays = dict(whole)
            names = [name for name in arrays if name.endswith(".correct")]
            path.write_bytes(KINDS[kind](arrays, this.random.choice(names)))
            done, memory = measured("harness", *words, cwd=own)
            demand(memory < _MOST, f"{kind}: {memory / 1e9:.1f} GB of memory")
            if KINDS[kind] in HARMLESS:
                demand(done.returncode == 0, f"{kind}: {said(done)}")
            else:
                line = sentence(done)
                demand(path.name in line and "delete it" in line, f"no remedy in: {line}")
                path.unlink()
            ground.check_all(own)
        found = written_elsewhere(this.folder)
        demand(not found, f"executed, or written where it does not belong: {found}")
        demand(outside(this.folder) == before, "something was written outside")
        return f"{kind} {'harmless' if KINDS[kind] in HARMLESS else 'refused'}"

    return attempt
