"""`make test-slurm`: a part of the smoke grid through a real Slurm, beside the same part without it.

Checked: the models are bitwise the same, the records and the table equal; every job asked for the
time, memory, GPUs and partition that jobs/resources.py says; jobs side by side saw different GPUs;
none was forked from a zygote; a cancelled training came back with twice the time, a requeued one by
Slurm's doing, both continuing from their checkpoints; with device=cpu no GPU is asked for.

Not checked: real GPUs, limits that are enforced, several machines, accounting, and a job that really
runs into its limit (Slurm counts in minutes; the retry is the same as the cancelled job's).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from cluster import GPUS, Cluster, output  # noqa: E402

from harness.core import paths  # noqa: E402
from harness.core.config import read_grid, read_scale  # noqa: E402
from harness.grid.plan import Plan  # noqa: E402
from harness.jobs.resources import Machine, Request  # noqa: E402

SCALE, TABLE = "smoke", "cvpr23_table1a"
METHODS = ["nt", "at", "trades6", "generalist_d_nt_linf"]
CANCELLED, REQUEUED = "trades6", "generalist_d_nt_linf"
# Slurm's GPUs are simulated: a job that is given one would find that it cannot be used. Python imports
# this at its start; what Slurm gave stays to be seen in /proc.
SITE = """
import os, sys

if "SLURM_JOB_ID" in os.environ and "harness" in sys.orig_argv:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
"""
_SECONDS = ("seconds", "cpu_seconds", "trained")  # what a record says about its making


def small_grid(folder: Path) -> Path:
    content = read_grid()
    table = {"methods": METHODS, "networks": ["resnet18"], "seeds": 1}
    known = {TABLE: {}} | read_scale(SCALE)["artefacts"]  # what the scale changes has to be there
    content["artefacts"] = {name: content["artefacts"][name] for name in known}
    content["artefacts"][TABLE] |= table
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run_of(plan: Plan, slug: str) -> str:
    return next(run for run in plan.artefact(TABLE).runs if plan.runs[run].method.slug == slug)


def snakemake(*words: str, folder: Path, grid: Path, target: str, device: str = "auto") -> None:
    folder.mkdir()
    command = ["setpriv", "--pdeathsig", "TERM", sys.executable, "-m", "snakemake"]
    command += ["--snakefile", str(ROOT / "Snakefile")]
    command += ["--workflow-profile", str(ROOT / "profiles" / "default"), *words]
    command += ["--config", f"scale={SCALE}", f"grid={grid}", f"device={device}", "--", target]
    (folder / "sitecustomize.py").write_text(SITE)
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    with (folder / "snakemake.log").open("w") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=log)
    if done.returncode:
        print((folder / "snakemake.log").read_text())
        sys.exit(f"expected Snakemake to finish {target} in {folder}, found the above.")


def through_slurm(**what) -> None:
    profile = ["--profile", str(ROOT / "profiles" / "slurm")]
    sooner = ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "5"]
    snakemake(*profile, *sooner, "--slurm-status-command", "squeue", **what)


class Watch(threading.Thread):
    """What the jobs see, and two mishaps: one is cancelled, another sent back to the queue."""

    def __init__(self, cluster: Cluster, plan: Plan, results: Path) -> None:
        super().__init__(daemon=True)
        self.cluster, self.plan, self.results = cluster, plan, results
        self.over, self.together = threading.Event(), []
        self.cancelled = self.requeued = ""

    def run(self) -> None:
        while not self.over.wait(0.2):
            seen = dict(filter(None, map(self._environment, Path("/proc").glob("[0-9]*"))))
            if seen and seen not in self.together:
                self.together.append(seen)
            self.cancelled = self.cancelled or self._mishap(CANCELLED, "scancel")
            self.requeued = self.requeued or self._mishap(REQUEUED, "scontrol", "requeue")

    @staticmethod
    def _environment(process: Path) -> tuple[str, dict[str, str]] | None:
        try:
            if b"harness\0start" not in (process / "cmdline").read_bytes():
                return None
            entries = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return None
        found = {key: value for key, _, value in (entry.partition("=") for entry in entries)}
        return (found["SLURM_JOB_ID"], found) if "SLURM_JOB_ID" in found else None

    def _mishap(self, slug: str, *command: str) -> str:
        """To the training of that method, once it has written a checkpoint."""
        run = run_of(self.plan, slug)
        if not paths.checkpoint(self.results, run).exists():
            return ""
        for job in self.cluster.jobs():
            if job["JobState"] == "RUNNING" and job["Comment"].endswith(run):
                subprocess.run([*command, job["JobId"]], check=True)
                return job["JobId"]
        return ""


def asked(job: dict[str, str]) -> Request:
    days, hours, minutes, _ = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", job["TimeLimit"]).groups()
    number, unit = re.fullmatch(r"([\d.]+)([MG])", job["MinMemoryNode"]).groups()
    gpus = re.fullmatch(r"gres:gpu:(\d+)", job.get("TresPerJob", "gres:gpu:0"))
    megabytes = round(float(number) * (1024 if unit == "G" else 1))
    return Request(1440 * int(days or 0) + 60 * int(hours) + int(minutes), megabytes, int(gpus[1]))


def check_requests(jobs: list[dict[str, str]], plan: Plan, machine: Machine, cancelled: str) -> None:
    attempts: dict[str, int] = {}
    for job in sorted(jobs, key=lambda job: int(job["JobId"])):
        rule, run = re.fullmatch(r"rule_(\w+?)_wildcards_(.*)", job["Comment"]).groups()
        run = run if run in plan.runs else next(id for id in plan.runs if id in run)
        attempt = attempts[job["Comment"]] = attempts.get(job["Comment"], 0) + 1
        wanted = getattr(machine, rule)(plan, run, attempt)
        assert asked(job) == wanted, (asked(job), wanted)
        assert job["Partition"] == ("gpu" if wanted.gpus else "cpu")
        assert job["JobState"] == ("CANCELLED" if job["JobId"] == cancelled else "COMPLETED"), job
        print(f"  {job['JobId']:>3} {rule:<8} attempt {attempt}: {wanted}  {job['JobState']}  {run}")


def check_together(together: list[dict]) -> None:
    for seen in together:
        devices = [found["CUDA_VISIBLE_DEVICES"] for found in seen.values()]
        assert len(set(devices)) == len(devices), devices
        assert not any("GENERALIST_ZYGOTE" in found for found in seen.values())
    most = max(map(len, together))
    assert most == GPUS, f"never two jobs at once: {most}"
    print(f"  {most} jobs at once at most, each with a GPU of its own in CUDA_VISIBLE_DEVICES")


def contents(record: Path) -> tuple[dict[str, np.ndarray], dict]:
    arrays = dict(np.load(record))
    about = json.loads(arrays.pop("about").tobytes())
    return arrays, {key: value for key, value in about.items() if key not in _SECONDS}


def check_results(one: Path, other: Path, plan: Plan) -> None:
    runs = plan.artefact(TABLE).runs
    for run in runs:
        models = [paths.model(folder / "results", run).read_bytes() for folder in (one, other)]
        assert models[0] == models[1], f"other weights: {run}"
        evaluation = plan.evaluations[run]
        files = [paths.records(folder / "results", evaluation.id) for folder in (one, other)]
        (arrays, about), (others, about_others) = map(contents, files)
        assert about == about_others, evaluation.id
        assert arrays.keys() == others.keys()
        assert all(np.array_equal(arrays[name], others[name]) for name in arrays), evaluation.id
    tables = [folder / "reports" / SCALE / "tables" / f"{TABLE}.csv" for folder in (one, other)]
    assert tables[0].read_bytes() == tables[1].read_bytes()
    print(f"  {len(runs)} models bitwise the same, as many records and the table equal")


def check_continued(folder: Path, plan: Plan) -> None:
    for slug in (CANCELLED, REQUEUED):
        run = run_of(plan, slug)
        log = (folder / "results" / "logs" / "train" / f"{run}.log").read_text()
        found = re.search(r"after epoch \d+", log)
        assert found, log
        print(f"  {run} went on {found[0]}")


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("stopped"))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="test-slurm-") as scratch:
        folder = Path(scratch)
        grid = small_grid(folder)
        plan = Plan.read(SCALE, grid)
        with Cluster(folder) as cluster:
            print(
                f"{output('sbatch', '--version').strip()} is up after {time.monotonic() - began:.0f} s"
            )
            began = time.monotonic()
            watch = Watch(cluster, plan, folder / "slurm" / "results")
            watch.start()
            through_slurm(folder=folder / "slurm", grid=grid, target=TABLE)
            watch.over.set()
            watch.join()
            jobs = cluster.jobs()
            print(f"{TABLE} of {len(METHODS)} models through Slurm: {time.monotonic() - began:.0f} s")
            check_requests(jobs, plan, Machine(), watch.cancelled)
            check_together(watch.together)
            assert watch.cancelled
            restarts = {job["JobId"] for job in jobs if job["Restarts"] != "0"}
            assert restarts == {watch.requeued}, restarts
            check_continued(folder / "slurm", plan)
            began = time.monotonic()
            model = paths.model(Path("results"), run_of(plan, METHODS[0]))
            through_slurm(folder=folder / "cpu", grid=grid, target=str(model), device="cpu")
            print(f"one model with device=cpu: {time.monotonic() - began:.0f} s")
            known = {job["JobId"] for job in jobs}
            later = [job for job in cluster.jobs() if job["JobId"] not in known]
            check_requests(later, plan, Machine("cpu"), "")
        began = time.monotonic()
        snakemake("--cores", "2", folder=folder / "local", grid=grid, target=TABLE)
        print(f"{TABLE} without Slurm: {time.monotonic() - began:.0f} s")
        check_results(folder / "slurm", folder / "local", plan)
        assert (folder / "cpu" / model).read_bytes() == (folder / "local" / model).read_bytes()
    print("passed")


if __name__ == "__main__":
    main()
