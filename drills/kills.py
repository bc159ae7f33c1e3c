"""kill -9 at random moments, then the same command again.

A moment is drawn in the progress of the process, since seconds mean little on a busy machine: CPU time
for a job, number of files for a build. If a process ended before it was killed, another one is started.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from drills import Attempt, LostError, Try, demand
from drills.commands import ENVIRONMENT, processes_in, said, snakemake, snakemake_words, wait_until
from drills.ground import METHODS, Ground
from harness.core import paths

_VICTIMS = 20


def caught(this: Try, kill: Callable[[Path], bool]) -> Path:
    """The folder of the first process that was still running when it was killed."""
    for number in range(_VICTIMS):
        folder = this.folder / str(number)
        folder.mkdir()
        if kill(folder):
            return folder
    raise LostError("every process had ended before it was killed")


def killed(ground: Ground, random: Random, words: tuple[str, ...], folder: Path, moment: float) -> bool:
    """kill -9 the job's process, or the client that the workflow waits for. Was it still running?"""
    job, begun = ground.start(*words, cwd=folder), 0.0
    while job.poll() is None and begun < moment:
        begun = max([begun, *map(cpu_seconds_of, ground.jobs())])
        time.sleep(0.002)
    jobs = ground.jobs()
    if jobs and random.random() < 0.5:
        try:
            os.kill(jobs[0], signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            jobs = []
    else:
        job.kill()
    job.communicate()
    ground.wait_for_silence()
    return bool(jobs)


def cpu_seconds_of(pid: int) -> float:
    """CPU time of a process: independent of how busy the machine is."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


def undisturbed(ground: Ground, words: tuple[str, ...], folder: Path) -> float:
    """The CPU time of an undisturbed job."""
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
        def kill(folder: Path) -> bool:
            moment = this.random.random() * cpu_seconds
            return killed(ground, this.random, words, folder, moment)

        folder = caught(this, kill)
        checkpoint = paths.checkpoint(folder / "results", run.id).exists()
        done = ground.run(*words, cwd=folder)
        demand(done.returncode == 0, f"the second start failed: {said(done)}")
        ground.check_weights(run, folder)
        demand(not checkpoint or "continuing" in done.stdout, "a checkpoint was not used")
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
        def kill(folder: Path) -> bool:
            early = this.random.random() ** 3  # most of its time goes into checks, after the last shard
            return killed(ground, this.random, words, with_model(folder), early * cpu_seconds)

        folder = caught(this, kill)
        shards = len(list((folder / "results" / "records").glob("*/*/*.npz")))
        done = ground.run(*words, cwd=folder)
        demand(done.returncode == 0, f"the second start failed: {said(done)}")
        ground.check_records(run, folder)
        return f"with {shards} shards done" if shards else "before the first shard"

    return attempt


def workflow(ground: Ground) -> Attempt:
    """kill -9 Snakemake, alone or with its process group"""
    whole = made(ground.built)

    def kill(folder: Path, random: Random, group: bool) -> bool:
        process = subprocess.Popen(
            [sys.executable, "-m", *snakemake_words(grid=ground.grid)],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        moment = random.random() * whole
        while process.poll() is None and made(folder) < moment:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.5))
        at_work = process.poll() is None
        if at_work:
            (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not processes_in(folder), 60, "orphans did not end")
        return at_work

    def attempt(this: Try) -> str:
        group = this.number % 2 == 0
        folder = caught(this, lambda f: kill(f, this.random, group))
        finished = {path: path.stat().st_mtime_ns for path in finished_models(ground, folder)}
        unlocked = snakemake("--unlock", cwd=folder, grid=ground.grid)
        demand(unlocked.returncode == 0, f"--unlock failed: {said(unlocked)}")
        done = snakemake(cwd=folder, grid=ground.grid)
        demand(done.returncode == 0, f"the second start failed: {said(done)}")
        ground.check_tables(folder)
        for slug in METHODS:
            ground.check_weights(ground.run_of(slug), folder)
            ground.check_records(ground.run_of(slug), folder)
        for path, time_ns in finished.items():
            demand(path.stat().st_mtime_ns == time_ns, f"{path} was finished and made again")
        who = "with its group" if group else "alone"
        return f"{who}, {len(finished)} of {len(METHODS)} models kept"

    return attempt


def made(folder: Path) -> int:
    """The number of files that a build has made so far."""
    places = (folder / "results", folder / "reports")
    return sum(path.is_file() for place in places for path in place.rglob("*"))


def finished_models(ground: Ground, folder: Path) -> list[Path]:
    """Models whose evaluation had begun: Snakemake knew that they were finished."""
    runs = [ground.run_of(slug).id for slug in METHODS]
    logs = folder / "results" / "logs" / "evaluate"
    return [paths.model(folder / "results", run) for run in runs if list(logs.glob(f"{run}-*.log"))]
