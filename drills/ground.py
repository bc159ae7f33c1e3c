"""What all drills use: a small grid, its undisturbed build, and jobs started as Snakemake starts them.

Jobs are forked from a zygote (harness/jobs/zygote.py), so a random moment falls into their work rather
than into `import torch`.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from drills import demand
from drills.commands import ENVIRONMENT, Done, command, descendants, said, snakemake, wait_until
from harness.core import paths
from harness.core.config import read_grid
from harness.core.paths import read_description
from harness.evaluation.records import read_evaluation
from harness.grid.plan import Plan
from harness.jobs import zygote
from harness.jobs.start import ADDRESS
from harness.training.runs import TrainRun

TABLE = "cvpr23_table1a"
METHODS = ["nt", "at"]
MADE = {"model.safetensors", "run.json", "history.csv", "trace.npz"}  # of a finished training
_WAIT = 60


def small_grid(path: Path, methods: list[str], entries: dict[str, Any] | None = None) -> Path:
    """The grid reduced to one table of a few methods, with additional method entries."""
    content = read_grid()
    content["methods"] |= entries or {}
    table = {**content["artefacts"][TABLE], "methods": methods, "columns": ["NAT", "PGD20", "AA"]}
    content["artefacts"] = {TABLE: table}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


@dataclass(frozen=True)
class Ground:
    folder: Path

    @cached_property
    def grid(self) -> Path:
        return small_grid(self.folder / "grid.yaml", METHODS)

    @cached_property
    def plan(self) -> Plan:
        return Plan.read("ci", self.grid)

    @cached_property
    def built(self) -> Path:
        """The complete build of the small grid, undisturbed."""
        folder = self.folder / "built"
        folder.mkdir()
        done = snakemake(cwd=folder, grid=self.grid)
        demand(done.returncode == 0, said(done))
        return folder

    def copy(self, to: Path) -> Path:
        """Copy the build, with the times of its files."""
        wanted = shutil.ignore_patterns(".snakemake", "logs", "benchmarks")
        shutil.copytree(self.built, to, ignore=wanted, dirs_exist_ok=True)
        return to

    @cached_property
    def zygote(self) -> tuple[str, int]:
        """Address and process id of the drills' zygote, which ends with this process."""
        before = os.environ.copy()
        os.environ.update(ENVIRONMENT)
        zygote.launch()
        address = os.environ[ADDRESS]
        os.environ.clear()
        os.environ.update(before)
        own = zygote._launched[-1]
        atexit.register(own.kill)
        return address, own.pid

    def run_of(self, slug: str) -> TrainRun:
        return self.plan.train_run(slug, "cifar10", "resnet18", seed=0)

    def start(
        self,
        *words: str,
        cwd: Path,
        grid: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[str]:
        """A job, as the workflow starts it."""
        cwd.mkdir(parents=True, exist_ok=True)
        settings = ["--grid", str(grid or self.grid), "--scale", "ci"]
        return subprocess.Popen(
            [sys.executable, "-m", "harness", "start", *words, *settings],
            cwd=cwd,
            env={**os.environ, **ENVIRONMENT, **(environment or {}), ADDRESS: self.zygote[0]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, cwd: Path, **settings: Any) -> Done:
        job = self.start(*words, cwd=cwd, **settings)
        out, err = job.communicate(timeout=600)
        return Done(words, job.returncode, out, err)

    def jobs(self) -> list[int]:
        """The processes of all running jobs."""
        return descendants(self.zygote[1])

    def wait_for_silence(self) -> None:
        wait_until(lambda: not self.jobs(), _WAIT, "a job's process did not end")

    def finish(self, run: TrainRun, folder: Path) -> None:
        """What a user does after a remedy: train and evaluate what is missing."""
        if not paths.model(folder / "results", run.id).exists():
            done = self.run("train", "--run", run.id, cwd=folder)
            demand(done.returncode == 0, f"the training did not start again: {said(done)}")
        if not paths.records(folder / "results", self.plan.evaluations[run.id].id).exists():
            done = self.run("evaluate", "--run", run.id, cwd=folder)
            demand(done.returncode == 0, f"the evaluation did not start again: {said(done)}")

    def check_weights(self, run: TrainRun, folder: Path) -> None:
        """The weights are bitwise those of the undisturbed training, and no other files are left."""
        ours, theirs = folder / "results", self.built / "results"
        own = paths.model(ours, run.id)
        demand(own.exists(), f"no weights of {run.id}")
        same = own.read_bytes() == paths.model(theirs, run.id).read_bytes()
        demand(same, f"other weights of {run.id}")
        recorded = (
            read_description(ours, run.id)["sha256"] == read_description(theirs, run.id)["sha256"]
        )
        demand(recorded, f"another checksum in run.json of {run.id}")
        left = {path.name for path in own.parent.iterdir()} ^ MADE
        demand(not left, f"left over or missing beside the weights: {sorted(left)}")

    def check_records(self, run: TrainRun, folder: Path) -> None:
        """All arrays and counts equal those of the undisturbed evaluation; times may differ."""
        (ours, about), (theirs, known) = (
            read_evaluation(where / "results", self.plan.evaluations[run.id])
            for where in (folder, self.built)
        )
        demand(ours.keys() == theirs.keys(), "other probes in the records")
        for probe, record in ours.items():
            for name, value in asdict(record).items():
                same = np.array_equal(value, getattr(theirs[probe], name))
                demand(same, f"another {name} of {probe}")
        demand(about["checks"] == known["checks"], "other trust checks")
        left = [path.name for path in (folder / "results" / "records").rglob(".*")]
        demand(not left, f"left over beside the records: {left}")

    def check_tables(self, folder: Path) -> None:
        own = folder / "reports" / "ci" / "tables"
        for path in (self.built / "reports" / "ci" / "tables").iterdir():
            found = own / path.name
            demand(found.exists(), f"no {path.name}")
            demand(_without_times(found) == _without_times(path), f"another {path.name}")

    def make_table(self, folder: Path) -> Done:
        return self.run("tables", "--artefact", TABLE, cwd=folder)

    def check_all(self, folder: Path) -> None:
        """The table, made again from what is there, equals the undisturbed one."""
        for slug in METHODS:
            self.finish(self.run_of(slug), folder)
            self.check_weights(self.run_of(slug), folder)
        done = self.make_table(folder)
        demand(done.returncode == 0, f"no table: {said(done)}")
        self.check_tables(folder)


def make_page(ground: Ground, folder: Path) -> Done:
    return command("harness", "page", "--grid", str(ground.grid), "--scale", "ci", cwd=folder)


def _without_times(path: Path) -> bytes:
    """A report's bytes without the seconds that an evaluation took, which no two evaluations share, and
    without the checksum over them."""
    return re.sub(rb'"seconds": [\d.]+|"seal": "\w+"', b"", path.read_bytes())
