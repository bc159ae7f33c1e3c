"""kill -9 at random moments, then the same command again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from drills import Attempt, Try, demand
from drills.commands import (
    ENVIRONMENT,
    processes_in,
    said,
    snakemake,
    snakemake_words,
    wait_until,
)
from drills.ground import METHODS, Ground
from harness import paths


def killed(ground: Ground, this: Try, words: tuple[str, ...], cpu_seconds: float) -> bool:
    """kill -9 the job's process, or the client that the workflow waits for; was it still at work?"""
    job, moment, begun = ground.start(*words, cwd=this.folder), this.random.random(), 0.0
    while job.poll() is None and begun < moment * cpu_seconds:
        begun = max([begun, *map(cpu_seconds_of, ground.jobs())])
        time.sleep(0.002)
    jobs = ground.jobs()
    if jobs and this.random.random() < 0.5:
        os.kill(jobs[0], signal.SIGKILL)
    else:
        job.kill()
    job.communicate()
    ground.wait_for_silence()
    return bool(jobs)


def cpu_seconds_of(pid: int) -> float:
    """A job's own clock, however busy the machine is."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def undisturbed(ground: Ground, words: tuple[str, ...], folder: Path) -> float:
    """The CPU time of a job, seen from outside."""
    ground.run("train", "--run", "none", cwd=folder)  # so that the zygote has imported everything
    job, seen = ground.start(*words, cwd=folder), 0.0
    while job.poll() is None:
        seen = max([seen, *map(cpu_seconds_of, ground.jobs())])
        time.sleep(0.002)
    demand(job.returncode == 0, str(job.communicate()))
    return seen


def training(ground: Ground) -> Attempt:
    """kill -9 a training"""
    run = ground.run_of("at")
    words = ("train", "--run", run.id)
    cpu_seconds = undisturbed(ground, words, ground.folder / "timed_training")

    def attempt(this: Try) -> str:
        at_work = killed(ground, this, words, cpu_seconds)
        checkpoint = paths.checkpoint(this.folder / "results", run.id).exists()
        finished = paths.model(this.folder / "results", run.id).exists()
        done = ground.run(*words, cwd=this.folder)
        demand(done.returncode == 0, f"the second start failed: {said(done)}")
        ground.check_weights(run, this.folder)
        demand(not checkpoint or "continuing" in done.stdout, "a checkpoint was not used")
        if finished or not at_work:
            return "killed when it had ended"
        return "continued from a checkpoint" if checkpoint else "started again"

    return attempt


def evaluation(ground: Ground) -> Attempt:
    """kill -9 an evaluation"""
    run = ground.run_of("at")
    words = ("evaluate", "--run", run.id)

    def with_model(folder: Path) -> Path:
        place = paths.model(Path("results"), run.id).parent
        shutil.copytree(ground.built / place, folder / place)
        return folder

    timed = with_model(ground.folder / "timed_evaluation")
    cpu_seconds = undisturbed(ground, words, timed)

    def attempt(this: Try) -> str:
        with_model(this.folder)
        killed(ground, this, words, cpu_seconds)
        shards = len(list((this.folder / "results" / "records").glob("*/*/*.npz")))
        whole = paths.records(this.folder / "results", ground.plan.evaluations[run.id].id).exists()
        done = ground.run(*words, cwd=this.folder)
        demand(done.returncode == 0, f"the second start failed: {said(done)}")
        ground.check_records(run, this.folder)
        if whole:
            return "killed when it had ended"
        return "continued from shards" if shards else "started again"

    return attempt


def workflow(ground: Ground) -> Attempt:
    """kill -9 Snakemake, alone or with its process group"""
    starts, seconds = 2.0, ground.build_seconds  # what it takes to begin differs from day to day

    def attempt(this: Try) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", *snakemake_words(grid=ground.grid)],
            cwd=this.folder,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(this.random.uniform(0, starts + seconds))
        ended, group = process.poll() is not None, this.random.random() < 0.5
        if not ended:
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not processes_in(this.folder), 60, "orphans did not end")
        finished = {path: path.stat().st_mtime_ns for path in finished_models(ground, this.folder)}
        unlocked = snakemake("--unlock", cwd=this.folder, grid=ground.grid)
        demand(unlocked.returncode == 0, f"--unlock failed: {said(unlocked)}")
        done = snakemake(cwd=this.folder, grid=ground.grid)
        demand(done.returncode == 0, f"the second start failed: {said(done)}")
        ground.check_tables(this.folder)
        for slug in METHODS:
            ground.check_weights(ground.run_of(slug), this.folder)
            ground.check_records(ground.run_of(slug), this.folder)
        for path, time_ns in finished.items():
            demand(path.stat().st_mtime_ns == time_ns, f"{path} was finished and made again")
        if ended:
            return "killed when it had ended"
        return f"{'with its group' if group else 'alone'}, {len(finished)} models finished"

    return attempt


def finished_models(ground: Ground, folder: Path) -> list[Path]:
    """Those whose evaluation had begun: Snakemake knew that they were finished."""
    runs = [ground.run_of(slug).id for slug in METHODS]
    logs = folder / "results" / "logs" / "evaluate"
    return [paths.model(folder / "results", run) for run in runs if list(logs.glob(f"{run}-*.log"))]
