"""Two commands at once in one folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from drills import Attempt, Try, demand
from drills.commands import ENVIRONMENT, Done, said, sentence, snakemake, snakemake_words, wait_until
from drills.ground import Ground
from drills.kills import made


def workflows(ground: Ground) -> Attempt:
    """two Snakemakes on one folder"""

    def attempt(this: Try) -> str:
        first = subprocess.Popen(
            [sys.executable, "-m", *snakemake_words(grid=ground.grid)],
            cwd=this.folder,
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        locks = this.folder / ".snakemake" / "locks"
        # Not later than that: the second takes seconds to start.
        moment = this.random.uniform(0, 0.6) * made(ground.built)
        wait_until(lambda: locks.is_dir() and any(locks.iterdir()), 60, "no lock")
        wait_until(lambda: made(this.folder) >= moment, 600, "the first did not go on")
        second = snakemake(cwd=this.folder, grid=ground.grid)
        late = first.poll() is not None
        output, _ = first.communicate(timeout=600)
        demand(first.returncode == 0, f"the first failed: {output}")
        ground.check_tables(this.folder)
        if late or second.returncode == 0:
            demand(second.returncode == 0, said(second))
            return "the second came when the first had ended"
        demand("--unlock" in said(second), f"no remedy: {said(second)}")
        return "the second refused by Snakemake's lock"

    return attempt


def trainings(ground: Ground) -> Attempt:
    """two trainings of one run, started by hand"""
    run = ground.run_of("at")
    words = ("train", "--run", run.id)
    ground.run("train", "--run", "none", cwd=ground.folder)

    def attempt(this: Try) -> str:
        jobs = [ground.start(*words, cwd=this.folder)]
        time.sleep(this.random.uniform(0, 0.5))
        jobs.append(ground.start(*words, cwd=this.folder))
        ends = [job.communicate(timeout=600) for job in jobs]
        done = [Done(words, job.returncode, *end) for job, end in zip(jobs, ends, strict=True)]
        refused = [one for one in done if one.returncode != 0]
        demand(len(refused) < 2, f"both refused: {done}")
        for one in refused:
            line = sentence(one)
            demand("wait for that one" in line, f"no remedy: {line}")
        ground.check_weights(run, this.folder)
        return "one refused" if refused else "one after the other"

    return attempt
