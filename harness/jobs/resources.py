"""What a job asks of a batch system: minutes, megabytes, GPUs. Imports no torch: rules ask early.

Minutes are the work of a job (harness/jobs/bill.py) times the operations of a pass, at the speed
that the user states (`--config device_tflops=20`) or a low guess, times two, plus a start. A job
that failed asks for twice as much at each further attempt, up to `--config max_minutes=2880`: a
longer training is cut there and continues at the next attempt. A method or network that was never
measured counts as the costliest that was.

Megabytes are the host's, since batch systems do not share out a GPU's memory. They grow to four
times the first request at most: a training that is cut daily for ten days needs no more memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from harness.attacks.work import Work
from harness.core.errors import expected, unknown
from harness.data import count
from harness.grid.plan import Plan
from harness.jobs import bill
from harness.jobs.bill import Network, Rate
from harness.machine.device import DEVICES
from harness.training.runs import TrainRun

# Low guesses. The papers' GPU sustained 7.4 TFLOPS, a fifth of its data sheet (docs/costs.md); one core
# was seen to sustain 0.07 on ResNet-18.
GPU_TFLOPS, CORE_TFLOPS = 5.0, 0.02
SAFETY = 2.0
LEAST_MINUTES = 15  # importing, reading data, trust checks
MAX_MINUTES = 24 * 60  # what nearly every partition allows
_START_MB = {"cpu": 1500, "gpu": 5000}  # a process with torch; with CUDA's libraries as well
_SNAKEMAKE_MB = 1000  # two Snakemake processes run inside a Slurm job's limit
_DATA_MB = 8000  # the most of a memory map that must stay in memory
_COPIES = 12  # of the weights: learners, gradients, momenta, averages, the best epoch, a checkpoint


# What `--config` may say; workflow/common.smk reads the first three.
ENTRIES = ("scale", "grid", "jobs", "device", "device_tflops", "max_minutes")


def network_of(run: TrainRun) -> Network:
    """The run's network; if unmeasured, the costliest for such images, or of all."""
    known, (name, image) = bill.known_networks(), bill.kind(run)
    alike = [network for (_, size), network in known.items() if size == image]
    own = known.get((name, image))
    return own or max(alike or known.values(), key=lambda network: network.price.updates)


def rate_of(run: TrainRun) -> Rate:
    """The rate of the run's method; if unmeasured, the costliest."""
    known = bill.known_rates()
    own = known.get(bill.shape(run.method))
    return own or max(known.values(), key=lambda rate: rate.step.all_forward)


def guess(plan: Plan, rule: str, run_id: str, parts: int = 1, end: int | None = None) -> float:
    """Seconds that a core may need for a training, for its trunk until epoch `end`, or for one of the
    `parts` of an evaluation."""
    run = plan.run(run_id)
    if rule in ("train", "trunk"):
        work = bill.of_training(plan.trunks.stretch(run, end), rate_of(run))
    else:
        work = bill.of_evaluation(plan.evaluations[run_id].probes) * (1 / parts)
    return 1 + work.at(network_of(run).price) / (1e12 * CORE_TFLOPS)


@dataclass(frozen=True)
class Request:
    minutes: int
    megabytes: int
    gpus: int


@dataclass(frozen=True)
class Machine:
    """Where jobs run: `--config device=... device_tflops=... max_minutes=...`."""

    device: str = "auto"
    tflops: float | None = None
    max_minutes: int = MAX_MINUTES

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Machine:
        """Of Snakemake's `--config`, of which no entry may be unknown."""
        for name in config:
            if name not in ENTRIES:
                raise unknown("entry", name, ENTRIES, "--config")

        def positive(name: str, kind: type, default: Any) -> Any:
            if config.get(name) is None:
                return default
            with suppress(TypeError, ValueError):
                if (value := kind(config[name])) > 0:
                    return value
            remedy = f"give --config {name}=..."
            raise expected(f"a number above 0 as {name}", config[name], remedy)

        device = str(config.get("device", "auto"))
        if not re.fullmatch(r"(cuda|mps):\d+", device) and device not in DEVICES:
            raise unknown("device", device, [*DEVICES, "cuda:0"], "--config")
        tflops, minutes = ("device_tflops", float, None), ("max_minutes", int, MAX_MINUTES)
        return cls(device, positive(*tflops), positive(*minutes))

    def train(self, plan: Plan, run_id: str, attempt: int = 1, parts: int = 1) -> Request:
        run = plan.run(run_id)
        work = bill.of_training(run, rate_of(run)) * (1 / parts)
        processes = max(run.processes, plan.data_parallel(run_id))
        return self._request(plan, run, work, run.recipe.batch_size, processes, attempt)

    def evaluate(self, plan: Plan, run_id: str, attempt: int = 1, parts: int = 1) -> Request:
        """One of `parts` jobs that share an evaluation; the job that joins them asks for a whole."""
        probes = plan.evaluations[run_id].probes
        work = bill.of_evaluation(probes) * (1 / parts)
        batch_size = max((p.batch_size for p in probes if p.attack), default=1)
        return self._request(plan, plan.run(run_id), work, batch_size, 1, attempt)

    def _request(
        self, plan: Plan, run: TrainRun, work: Work, batch_size: int, processes: int, attempt: int
    ) -> Request:
        network = network_of(run)
        # A device given by index (cuda:1) is not managed here.
        gpus = processes if self.device in ("auto", "cuda") else 0
        # Parallel processes do not count as faster: one of them may have all the work.
        tflops = self.tflops or (GPU_TFLOPS if gpus else CORE_TFLOPS * plan.scale["threads"])
        seconds = SAFETY * work.at(network.price) / (1e12 * tflops)
        minutes = 2 ** (attempt - 1) * (LEAST_MINUTES + int(seconds / 60))
        _, (channels, height, width) = bill.kind(run)
        images = count(run.dataset, "train+validation") * channels * height * width / 1e6
        batch = 0 if gpus else 2 * batch_size * network.kept_bytes / 1e6
        each = _START_MB["gpu" if gpus else "cpu"] + batch + _COPIES * network.weight_bytes / 1e6
        total = int(_SNAKEMAKE_MB + min(images, _DATA_MB) + processes * each)
        megabytes = 2 ** min(attempt - 1, 2) * 500 * -(-total // 500)
        return Request(min(self.max_minutes, minutes), megabytes, gpus)
