"""What a job asks of a batch system: minutes, megabytes, GPUs. Torch-free and cheap: rules ask early.

Minutes are the bill's passes (docs/passes.csv) times what a pass of the network costs
(docs/operations.csv) at a speed that the user states (`--config device_tflops=20`) or that is guessed
low here, times two, plus a start. A job that failed asks for twice as much at each further attempt, up
to `--config max_minutes=2880`: a longer training is cut there and continues at the next attempt. What
was never measured is billed as the costliest that was.

Megabytes are the host's (a GPU's own are no resource that batch systems share out), and grow to four
times the first request at most: that a training of ten days fails daily says nothing about its memory.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from harness.core.config import ROOT
from harness.core.errors import expected
from harness.data import count
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.grid.probes import EvalRun
from harness.jobs.bill import Rate, Work, of_evaluation, of_training, read_rates, shape
from harness.training.runs import TrainRun

OPERATIONS = ROOT / "docs" / "operations.csv"
# Guesses on the low side. float32 convolutions reach about half of a GPU's peak, and a GPU of 2017 has
# 11 to 15 TFLOPS; one core was seen to sustain 0.07 on ResNet-18 (README.md).
GPU_TFLOPS, CORE_TFLOPS = 5.0, 0.02
SAFETY = 2.0
LEAST_MINUTES = 15  # importing, reading data, trust checks: small jobs are all start
MAX_MINUTES = 24 * 60  # what nearly every partition allows
_START_MB = {"cpu": 1500, "gpu": 5000}  # a process with torch; with CUDA's libraries as well
_SNAKEMAKE_MB = 1000  # two of them watch over a Slurm job, inside its limit
_DATA_MB = 8000  # of a memory map, more need not stay in memory
_COPIES = 12  # of the weights: learners, gradients, momenta, averages, the best epoch, a checkpoint


@dataclass(frozen=True)
class Network:
    """What a network costs per image of a size: operations of a pass, bytes kept for the backward."""

    name: str
    channels: int
    height: int
    width: int
    looks: float
    climbs: float
    learns: float
    kept_bytes: float
    weight_bytes: float

    @property
    def price(self) -> Work:
        return Work(self.looks, self.climbs, self.learns)


def write_networks(networks: list[Network]) -> None:
    names = [field.name for field in fields(Network)]
    with OPERATIONS.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(names)
        for one in sorted(networks, key=lambda n: (n.name, n.channels, n.height, n.width)):
            values = [getattr(one, name) for name in names]
            rows.writerow([v if isinstance(v, str) else f"{v:.12g}" for v in values])


@cache
def networks() -> tuple[Network, ...]:
    with OPERATIONS.open() as file:
        rows = list(csv.reader(file))[1:]
    return tuple(Network(row[0], *map(int, row[1:4]), *map(float, row[4:])) for row in rows)


def network_of(run: TrainRun) -> Network:
    """Measured; or the costliest for such images, or of all."""
    entry = SETS[run.dataset]
    looks_like = (entry.channels, *entry.size)
    alike = [n for n in networks() if (n.channels, n.height, n.width) == looks_like]
    own = [n for n in alike if n.name == run.network]
    return max(own or alike or networks(), key=lambda n: n.learns)


@cache
def _rates() -> dict[str, Rate]:
    return read_rates()


def rate_of(run: TrainRun) -> Rate:
    known = _rates()
    return known.get(shape(run.method)) or max(known.values(), key=lambda r: r.step.forward)


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
        def positive(name: str, default: Any, kind: type) -> Any:
            given = config.get(name, default)
            try:
                value = None if given is None else kind(given)
            except (TypeError, ValueError):
                value = 0
            if value is not None and not value > 0:
                raise expected(f"a number above 0 as {name}", given, f"give --config {name}=...")
            return value

        return cls(
            device=str(config.get("device", "auto")),
            tflops=positive("device_tflops", None, float),
            max_minutes=positive("max_minutes", MAX_MINUTES, int),
        )

    def gpus(self, processes: int) -> int:
        """A device that was named by its number (cuda:1) is the user's own affair."""
        return processes if self.device in ("auto", "cuda") else 0

    def train(self, plan: Plan, run_id: str, attempt: int = 1, parts: int = 1) -> Request:
        run = plan.run(run_id)
        work = of_training(run, rate_of(run))
        return self._request(plan, run, work, run.recipe.batch_size, run.processes, attempt, parts)

    def evaluate(self, plan: Plan, run_id: str, attempt: int = 1, parts: int = 1) -> Request:
        """One of the jobs that share it; the one that joins their work asks for a whole one's time."""
        run, evaluation = plan.run(run_id), plan.evaluations[run_id]
        attacked = [probe.batch_size for probe in evaluation.probes if probe.attack]
        batch_size = max(attacked, default=1)  # what is only looked at keeps nothing
        return self._request(plan, run, _evaluating(evaluation), batch_size, 1, attempt, parts)

    def _request(
        self,
        plan: Plan,
        run: TrainRun,
        work: Work,
        batch_size: int,
        processes: int,
        attempt: int,
        parts: int,
    ) -> Request:
        network, gpus = network_of(run), self.gpus(processes)
        # Processes side by side are not counted as faster: the slowest of them may have all the work.
        tflops = self.tflops or (GPU_TFLOPS if gpus else CORE_TFLOPS * plan.scale["threads"])
        seconds = SAFETY * work.at(network.price) / (1e12 * tflops * parts)
        minutes = 2 ** (attempt - 1) * (LEAST_MINUTES + int(seconds / 60))
        megabytes = 2 ** min(attempt - 1, 2) * _megabytes(run, network, batch_size, processes, gpus)
        return Request(min(self.max_minutes, minutes), megabytes, gpus)


def _megabytes(run: TrainRun, network: Network, batch_size: int, processes: int, gpus: int) -> int:
    pixels = network.channels * network.height * network.width
    data = min(count(run.dataset, "train+validation") * pixels / 1e6, _DATA_MB)
    batch = 0 if gpus else 2 * batch_size * network.kept_bytes / 1e6
    each = _START_MB["gpu" if gpus else "cpu"] + batch + _COPIES * network.weight_bytes / 1e6
    return 500 * -(-int(_SNAKEMAKE_MB + data + processes * each) // 500)


_known: dict[tuple[str, ...], Work] = {}


def _evaluating(evaluation: EvalRun) -> Work:
    """Most models of a scale are asked the same."""
    key = tuple(probe.id for probe in evaluation.probes)
    if key not in _known:
        _known[key] = of_evaluation(evaluation)
    return _known[key]
