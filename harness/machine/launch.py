"""Starts the processes that train one network together (distributed.py), as torchrun does."""

import os
import sys
from uuid import uuid4

from harness.core import process

_SECONDS_TO_LEAVE = 120  # after SIGTERM: a step and a checkpoint


def started() -> int:
    """How many processes torchrun or `start` started together with this one; 0 if neither did."""
    return int(os.environ.get("WORLD_SIZE", 0))


def affordable(wanted: int, device: str) -> int:
    """How many processes to start: no more than GPUs, if it is GPUs that compute."""
    import torch

    gpus = torch.cuda.device_count() if device in ("auto", "cuda") and wanted > 1 else 0
    if not 0 < gpus < wanted:
        return wanted
    print(f"training in {gpus} processes, not {wanted}: there are {gpus} GPUs", file=sys.stderr)
    return gpus


def start(count: int) -> None:
    """Run this training command in `count` processes; exit with a failure's code."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",  # a name server may not know this machine
        max_restarts=0,
        shutdown_timeout=_SECONDS_TO_LEAVE,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "harness", "train", *sys.argv[1:])
    except SignalException:  # passed on to all, and they have ended
        raise SystemExit(process.CODE) from None
    except ChildFailedError as failed:
        _, first = failed.get_first_failure()
        raise SystemExit(first.exitcode if first.exitcode > 0 else 1) from None
