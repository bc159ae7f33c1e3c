"""Truncated files and flipped bytes. A reader of such a file must refuse it with a sentence whose
remedy works, or the result must still be right. One drill for each kind of file."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from drills import Attempt, Try, demand
from drills.commands import Done, check_sentence, said, sentence
from drills.ground import METHODS, TABLE, Ground, make_page
from harness.core import paths
from harness.core.errors import UserError
from harness.data import load
from harness.reports.manifest import CURRENT, NAME, Manifest

_SET = "digits-c/fog/3"


def damage(path: Path, random: Random) -> None:
    """Cut a file anywhere, or change one to four of its bytes."""
    data = bytearray(path.read_bytes())
    if random.random() < 0.5:
        data = data[: random.randrange(len(data))]
    else:
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] ^= random.randint(1, 255)
    path.write_bytes(data)


@dataclass(frozen=True)
class Kind:
    """A kind of file: where it is, which command reads it. The remedy is always to delete something."""

    what: str
    choose: Callable[[Ground, Path, Random], Path]
    read: Callable[[Ground, Path, Path], Done]
    folder: bool = False  # the remedy is to delete the folder that it is in

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"truncate, or flip bytes in, {self.what}"

    def __call__(self, ground: Ground) -> Attempt:
        page = make_page(ground, ground.copy(ground.folder / f"page of {self.what}"))
        demand(page.returncode == 0, said(page))
        written = ground.folder / f"page of {self.what}" / "reports" / "ci" / "index.html"

        def attempt(this: Try) -> str:
            ground.copy(this.folder)
            path = self.choose(ground, this.folder, this.random)
            damage(path, this.random)
            done = self.read(ground, this.folder, path)
            refused = done.returncode != 0
            if refused:
                line = sentence(done)
                demand("delete" in line, f"no remedy in: {line}")
                target = path.parent if self.folder else path
                demand(target.name in line, f"{target.name} is not named in: {line}")
                shutil.rmtree(target) if self.folder else target.unlink()
            ground.check_all(this.folder)
            if refused:
                return "refused, right after its remedy"
            done = make_page(ground, this.folder)
            demand(done.returncode == 0, f"no page: {said(done)}")
            for slug in METHODS:
                ground.check_records(ground.run_of(slug), this.folder)
            made = this.folder / "reports" / "ci" / "index.html"
            demand(timeless(made) == timeless(written), "another page")
            return "harmless"

        return attempt


def timeless(page: Path) -> str:
    """The page without the evaluation time: joining existing shards takes less."""
    return re.sub(r"and [^<]* of evaluation", "", page.read_text())


def _run_of(path: Path) -> str:
    return path.parent.name


def _of_training(name: str) -> Callable[[Ground, Path, Random], Path]:
    def choose(ground: Ground, folder: Path, random: Random) -> Path:
        run = ground.run_of(random.choice(METHODS)).id
        return folder / "results" / "models" / run / name

    return choose


def _record(ground: Ground, folder: Path, random: Random) -> Path:
    return random.choice(sorted((folder / "results" / "records").glob("*.npz")))


def _shard(ground: Ground, folder: Path, random: Random) -> Path:
    """Delete the records, so that the evaluation joins the shards again; then choose a shard."""
    for path in (folder / "results" / "records").glob("*.npz"):
        path.unlink()
    return random.choice(sorted((folder / "results" / "records").glob("*/*/*.npz")))


def _evaluate(ground: Ground, folder: Path, path: Path) -> Done:
    for record in (folder / "results" / "records").glob(f"{_run_of(path)}-*.npz"):
        record.unlink()
    return ground.run("evaluate", "--run", _run_of(path), cwd=folder)


def _evaluate_shard(ground: Ground, folder: Path, path: Path) -> Done:
    return ground.run("evaluate", "--run", path.parent.parent.name, cwd=folder)


weights = Kind("weights", _of_training("model.safetensors"), _evaluate, folder=True)
description = Kind("run.json", _of_training("run.json"), _evaluate, folder=True)
history = Kind(
    "history.csv",
    _of_training("history.csv"),
    lambda ground, folder, path: make_page(ground, folder),
    folder=True,
)
record = Kind("records", _record, lambda ground, folder, path: ground.make_table(folder))
shard = Kind("shards of an evaluation", _shard, _evaluate_shard)


def checkpoint(ground: Ground) -> Attempt:
    """truncate, or flip bytes in, a checkpoint"""
    run = ground.run_of("at")
    words = ("train", "--run", run.id)
    kept = ground.folder / "interrupted"
    path = paths.checkpoint(kept / "results", run.id)
    job = ground.start(*words, cwd=kept)
    while not path.exists() and job.poll() is None:
        time.sleep(0.001)
    for pid in ground.jobs():
        os.kill(pid, signal.SIGKILL)
    job.communicate()
    demand(path.exists(), "no checkpoint was left to damage")

    def attempt(this: Try) -> str:
        own = paths.checkpoint(this.folder / "results", run.id)
        own.parent.mkdir(parents=True)
        shutil.copy(path, own)
        damage(own, this.random)
        line = sentence(ground.run(*words, cwd=this.folder))
        demand(str(own.name) in line and "delete it" in line, f"no remedy in: {line}")
        own.unlink()
        done = ground.run(*words, cwd=this.folder)
        demand(done.returncode == 0, f"no training after the remedy: {said(done)}")
        ground.check_weights(run, this.folder)
        return "refused, right after its remedy"

    return attempt


def cache(ground: Ground) -> Attempt:
    """truncate, or flip bytes in, the cache of a data set"""

    def attempt(this: Try) -> str:
        os.environ["GENERALIST_CACHE"] = str(this.folder)
        try:
            right = load(_SET, "test")
            x, y = np.array(right.x), np.array(right.y)
            (slot,) = this.folder.glob("*/")
            damage(slot / this.random.choice(["x.npy", "y.npy", "about.json"]), this.random)
            outcome = "harmless"
            try:
                found = load(_SET, "test")
            except UserError as error:
                outcome = "refused, right after its remedy"
                check_sentence(str(error))
                demand("delete" in str(error), f"no remedy in: {error}")
                shutil.rmtree(slot)
                found = load(_SET, "test")
            same = np.array_equal(found.x, x) and np.array_equal(found.y, y)
            demand(same and found.source == right.source, "other images")
            return outcome
        finally:
            del os.environ["GENERALIST_CACHE"]

    return attempt


def manifest(ground: Ground) -> Attempt:
    """truncate, or flip bytes in, the manifest of the reports"""

    def attempt(this: Try) -> str:
        ground.copy(this.folder)
        report = Path("reports", "ci")
        damage(this.folder / report / NAME, this.random)
        record = _record(ground, this.folder, this.random)
        record.write_bytes(record.read_bytes() + b" ")  # as if evaluated again
        shown = [report / "tables" / f"{TABLE}{end}" for end in (".csv", ".md", ".tex", ".json")]
        before = Path.cwd()
        os.chdir(this.folder)
        try:
            known = Manifest(ground.plan, Path("reports"))
            state = known.state(TABLE, [os.path.relpath(record)], [str(path) for path in shown])
        finally:
            os.chdir(before)
        demand(state != CURRENT, "believed, though damaged")
        return "not believed"

    return attempt
