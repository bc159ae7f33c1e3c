"""Processes that stop without ending."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from drills import Attempt, Try, demand
from drills.commands import Done, said, sentence
from drills.ground import Ground, small_grid
from drills.kills import cpu_seconds_of
from harness.core import paths
from harness.core.config import read_grid
from harness.grid.plan import Plan

_PATIENCE = 8  # seconds, where users have an hour: a busy machine takes five to import torch


def learner(ground: Ground) -> Attempt:
    """SIGSTOP a learner's process of a parallel training"""
    entry = {**read_grid()["methods"]["generalist_d_linf_l2"], "t_prime": "0", "c": "1/4"}
    entries = {"apart": entry, "together": {**entry, "parallel": True}}
    grid = small_grid(ground.folder / "parallel.yaml", list(entries), entries)
    plan = Plan.read("ci", grid)
    apart, run = (plan.train_run(slug, "cifar10", "resnet18", seed=0) for slug in entries)
    serial = ground.folder / "serial"
    done = ground.run("train", "--run", apart.id, cwd=serial, grid=grid)
    demand(done.returncode == 0, said(done))
    words = ("train", "--run", run.id)

    def learner_of(job: subprocess.Popen[str], cpu_seconds: float) -> tuple[int | None, float]:
        """The learner's process once it has used so much CPU time, and the CPU time seen."""
        pid, worked = None, 0.0
        while job.poll() is None and (pid is None or worked < cpu_seconds):
            pid = next(filter(is_learner, ground.jobs()), pid)
            worked = max(worked, cpu_seconds_of(pid) if pid else 0.0)
            time.sleep(0.002)
        return pid if job.poll() is None else None, worked

    whole = ground.start(*words, cwd=ground.folder / "together", grid=grid)
    _, cpu_seconds = learner_of(whole, float("inf"))
    demand(whole.returncode == 0, str(whole.communicate()))

    def attempt(this: Try) -> str:
        environment = {"GENERALIST_PATIENCE": str(_PATIENCE)}
        job = ground.start(*words, cwd=this.folder, grid=grid, environment=environment)
        late = this.random.random() ** 0.3  # it spends most of its time importing torch
        pid, _ = learner_of(job, late * cpu_seconds)
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        out, err = job.communicate(timeout=120)
        waited = time.monotonic() - began
        ground.wait_for_silence()
        kept = paths.checkpoint(this.folder / "results", run.id).exists()
        if job.returncode:
            line = sentence(Done(words, job.returncode, out, err))
            demand(f"none for {_PATIENCE} s" in line, f"another sentence: {line}")
            demand(waited < 10 * _PATIENCE, f"waited for {waited:.0f} s")
            done = ground.run(*words, cwd=this.folder, grid=grid)
            demand(done.returncode == 0, f"the second start failed: {said(done)}")
            demand(not kept or "continuing" in done.stdout, "a checkpoint was not used")
        ours, theirs = (
            paths.model(folder / "results", one.id).read_bytes()
            for folder, one in ((this.folder, run), (serial, apart))
        )
        demand(ours == theirs, "other weights than the serial training")
        if not job.returncode:
            return "stopped when it had ended"
        return f"noticed, then {'continued' if kept else 'started again'}"

    return attempt


def is_learner(pid: int) -> bool:
    """True for a learner; false for the training itself and for multiprocessing's resource tracker."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def job(ground: Ground) -> Attempt:
    """SIGSTOP a training, then SIGCONT"""
    run = ground.run_of("at")
    words = ("train", "--run", run.id)
    ground.run("train", "--run", "none", cwd=ground.folder)

    def attempt(this: Try) -> str:
        process = ground.start(*words, cwd=this.folder)
        time.sleep(this.random.uniform(0, 1))
        jobs = ground.jobs()
        for pid in jobs:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        asleep = process.poll() is None
        for pid in jobs:
            os.kill(pid, signal.SIGCONT)
        out, err = process.communicate(timeout=120)
        demand(process.returncode == 0, f"it did not go on: {out + err}")
        ground.check_weights(run, this.folder)
        return "waited for, then went on" if asleep else "stopped when it had ended"

    return attempt
