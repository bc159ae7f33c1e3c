"""Random resized crops of pictures in ImageNet's layout: how fast batches come, in how much memory.

The pictures are generated: 1,000 classes of four, of ImageNet's usual sizes and about its 110 kB,
smooth shapes with some noise. The system holds the files in memory, which it does not in a real
training. The alternative to decoding in every epoch is to crop pictures that were decoded once, with a
short side of 256. CPU times are those of the process: other work on the machine hardly changes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import Row
from harness.core.config import ROOT
from harness.data import load
from harness.data.pictures import cores
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.training import feed
from harness.training.batches import Batches
from harness.training.feed import cropped

CLASSES, EACH, BATCH, BATCHES = 1000, 4, 64, 12
SIZES = [(500, 375), (500, 375), (500, 333), (375, 500), (500, 400), (640, 480), (300, 225)]
STORED = 128  # pictures of the alternative
CPU = torch.device("cpu")


def measure() -> list[Row]:
    with TemporaryDirectory() as name:
        large, small = Path(name, "large"), Path(name, "small")
        size = write(large, small)
        with data(large):
            began = time.perf_counter()
            images = load("imagenet", "train+validation")
            seconds = time.perf_counter() - began
            rows = [
                Row("pictures", f"{len(images)} of {size / 1000:.0f} kB on average"),
                Row(f"listing and checking, {cores()} cores", f"{len(images) / seconds:.0f} images/s"),
                *(feeding(threads) for threads in sorted({1, cores()})),
                alternative(images.stored.x.picture),
                waiting(),
            ]
        return [*rows, memory(small, large)]


def write(large: Path, small: Path) -> float:
    """Two sets, of EACH pictures and of one picture per class; the mean of bytes per picture."""
    rng = np.random.default_rng(0)
    photos, written = [photo(rng) for _ in range(8)], 0
    for number in range(CLASSES):
        for rank in range(EACH):
            width, height = SIZES[rng.integers(len(SIZES))]
            whole = photos[rng.integers(len(photos))]
            left, top = (
                int(rng.integers(a - b + 1)) for a, b in zip(whole.size, (width, height), strict=True)
            )
            file = large / "imagenet" / "train" / f"n{number:08}" / f"{rank}.JPEG"
            file.parent.mkdir(parents=True, exist_ok=True)
            whole.crop((left, top, left + width, top + height)).save(file, "JPEG", quality=93)
            written += file.stat().st_size
        other = small / file.parent.relative_to(large)
        other.mkdir(parents=True)
        os.link(file, other / file.name)
    return written / CLASSES / EACH


def photo(rng: np.random.Generator, side: int = 900) -> Image.Image:
    """Smooth shapes of all sizes, and noise."""
    pixels = 15 * rng.standard_normal((side, side, 3)).astype(np.float32)
    for power in range(1, 9):
        coarse = rng.standard_normal((3, 2**power, 2**power)).astype(np.float32)
        fine = [Image.fromarray(own).resize((side, side), Image.Resampling.BICUBIC) for own in coarse]
        pixels += 60 * 1.6**-power * np.stack([np.asarray(own) for own in fine], axis=2)
    return Image.fromarray((pixels + 120).clip(0, 255).astype(np.uint8))


@contextmanager
def data(folder: Path) -> Iterator[None]:
    before = os.environ.get("GENERALIST_DATA")
    os.environ["GENERALIST_DATA"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("GENERALIST_DATA")
        os.environ.update({} if before is None else {"GENERALIST_DATA": before})


def batches(threads: int) -> Batches:
    torch.set_num_threads(threads)
    run = Plan.read("paper").train_run("at", "imagenet", "resnet50", seed=0)
    return Batches(replace(run, recipe=replace(run.recipe, batch_size=BATCH)), CPU)


def feeding(threads: int) -> Row:
    own = batches(threads)
    order = own.order(0)
    own.source.at(order, 0, 0)
    wall, cpu = time.perf_counter(), time.process_time()
    for step in range(1, BATCHES):
        own.source.at(order, 0, step)
    count = (BATCHES - 1) * BATCH
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = f"{count / wall:.0f} images/s; {1000 * cpu / count:.2f} ms of CPU each"
    return Row(f"random resized crops of files, threads: {threads}", found)


def alternative(picture: Callable[[int], Image.Image]) -> Row:
    draws = np.random.default_rng(0).random((STORED, 10, 4))
    stored = []
    for number in range(STORED):
        image = picture(number)
        sides = (256 * side // min(image.size) for side in image.size)
        stored.append(np.asarray(image.resize(tuple(sides), Image.Resampling.BILINEAR)))
    size = np.mean([own.nbytes for own in stored])
    began = time.process_time()
    for own, numbers in zip(stored, draws, strict=True):
        cropped(Image.fromarray(own), numbers, 224)
    each = 1000 * (time.process_time() - began) / STORED
    whole = SETS["imagenet"].images["train"] * size / 1e9
    found = f"{each:.2f} ms of CPU each; {size / 1000:.0f} kB a picture, {whole:.0f} GB for ImageNet"
    return Row("the same crops of decoded pictures with a short side of 256", found)


def waiting() -> Row:
    """How long a training waits for a batch: made when it is asked for, and read ahead."""
    alone = wait(ahead=0, step=0.0)
    step = 1.5 * alone  # of the device, in which the feed could make more than a batch
    beside = wait(ahead=2, step=step)
    what = f"wait for a batch of {BATCH}: not read ahead; read ahead, steps of {1000 * step:.0f} ms"
    return Row(what, f"{1000 * alone:.0f} ms; {1000 * beside:.0f} ms")


def wait(ahead: int, step: float) -> float:
    before, feed._AHEAD = feed._AHEAD, ahead
    own, seconds = batches(cores()), []
    order = own.order(0)
    for number in range(BATCHES):
        began = time.perf_counter()
        own.source.at(order, 0, number)
        seconds.append(time.perf_counter() - began)
        time.sleep(step)
    feed._AHEAD = before
    return float(np.median(seconds[1:]))


def memory(*folders: Path) -> Row:
    """Each set in a process of its own; file pages that the system keeps do not count."""
    found = {}
    for folder in folders:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.imagenet_feed", str(folder)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        images, megabytes = done.stdout.split()
        found[int(images)] = float(megabytes)
    told = ", ".join(f"{images} images: {megabytes:.0f} MB" for images, megabytes in found.items())
    first, last = found.values()
    return Row(f"memory after {BATCHES} batches", told, "grows by < 20 MB", last - first < 20)


def _resident(folder: str) -> tuple[int, float]:
    """How many images a set has, and the MB of a process that read some batches of it."""
    with data(Path(folder)):
        own = batches(1)
        order = own.order(0)
        for step in range(BATCHES):
            own.at(order, 0, step)
        lines = Path("/proc/self/status").read_text().splitlines()
    (anonymous,) = (line.split()[1] for line in lines if line.startswith("RssAnon"))
    return len(own.images), int(anonymous) / 1024


if __name__ == "__main__":
    print(*_resident(sys.argv[1]))
