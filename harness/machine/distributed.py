"""Data parallel: K processes train one network, each on its slice of every batch.

A recipe with `data_parallel: K` asks for it; `batch_size` stays that of the whole batch. What one
process computes and K compute together differs by the order of floating-point sums alone:
- random numbers that belong to an image (`per_image`) are drawn for the whole batch and sliced, so each
  image is augmented, and each attack started, as in one process; all other draws are equal in all;
- BatchNorm and gradients are those of the whole batch (machine/synchronized.py).
A method needs to do nothing for it, as long as its loss is a mean over images; one that needs more says
`NEEDS_WHOLE_BATCH` and is refused. Every checkpoint compares all processes.

In a single process each function here returns what it is given. torch is imported on first use, since
attacks import this module and planning imports attacks.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from harness.core import process
from harness.core.errors import expected
from harness.machine.device import torch

_SECONDS_TO_LEAVE = 120  # after SIGTERM: a step and a checkpoint
_PATIENCE = timedelta(days=1)  # while the first process measures an epoch, the others wait


class _Team:
    """This process among the others, and its slice of the current batch."""

    rank, size = 0, 1
    device: torch.device | str = "cpu"
    begin, end, images = 0, 0, 0
    together = False  # False in a single process, and while the first one works alone


def start_processes(count: int) -> None:
    """Run this training command in `count` processes, as torchrun does; exit with a failure's code."""
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


def is_started() -> bool:
    """Is this one of the processes that `start_processes` or torchrun started?"""
    return "WORLD_SIZE" in os.environ


def join(data_parallel: int | None, wanted: str) -> torch.device:
    """Connect to the other processes, if the recipe has any; the device of this one."""
    from harness.machine.device import pick_device

    device, size = pick_device(wanted), data_parallel or 1
    found = int(os.environ.get("WORLD_SIZE", 1))
    if found != size:
        what = f"{size} processes, as the recipe's data_parallel says"
        raise expected(what, found, "start without torchrun")
    if size == 1:
        return device
    if device.type == "cuda":
        if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
            raise expected(f"{size} GPUs", torch.cuda.device_count(), "lower data_parallel")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")  # gloo supports no other
    process.hold()  # all stop after the same step
    backend = "nccl" if device.type == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    _Team.rank, _Team.size, _Team.device = torch.distributed.get_rank(), size, device
    _Team.together = True
    return device


def leave() -> None:
    """Disconnect from the other processes."""
    if _Team.size > 1:
        torch.distributed.destroy_process_group()


def leads() -> bool:
    """Is this the process that writes files, measures epochs and prints?"""
    return _Team.rank == 0


def is_together() -> bool:
    """Do all processes compute the same step now?"""
    return _Team.together


@contextmanager
def alone() -> Iterator[None]:
    """Networks compute without the other processes here: those wait elsewhere."""
    before, _Team.together = _Team.together, False
    try:
        yield
    finally:
        _Team.together = before


def wait() -> None:
    """Wait until all processes are here."""
    if _Team.size > 1:
        _reduce(torch.zeros(1, device=_Team.device)).item()


def any_process(*flags: bool) -> tuple[bool, ...]:
    """For each flag: is it set in any process? The same answer in all."""
    if _Team.size == 1:
        return flags
    values = torch.tensor(flags, dtype=torch.int32, device=_Team.device)
    return tuple(bool(flag) for flag in _reduce(values, "MAX").tolist())


def batch_mean(reported: Mapping[str, float]) -> Mapping[str, float]:
    """Means over the whole batch, from each process's means over its slice."""
    if _Team.size == 1:
        return reported
    values = torch.tensor([*reported.values()], dtype=torch.float64, device=_Team.device)
    return dict(zip(reported, _reduce(values * share()).tolist(), strict=True))


def check_equal(state: Any) -> None:
    """Refuse to go on if the processes have different states."""
    if _Team.size == 1:
        return
    digest = hashlib.sha256()
    _update(digest, state)
    number = int.from_bytes(digest.digest()[:7], "big")
    both = torch.tensor([number, -number], dtype=torch.int64, device=_Team.device)
    largest, smallest = _reduce(both, "MAX").tolist()
    if largest != -smallest:
        found = "states that differ: something was drawn or decided for a slice alone"
        remedy = "take data_parallel out of the recipe, or say NEEDS_WHOLE_BATCH in the method"
        raise expected(f"the same state in all {_Team.size} processes", found, remedy)


def _update(digest: Any, state: Any) -> None:
    if isinstance(state, torch.Tensor):
        digest.update(state.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    elif isinstance(state, Mapping):
        _update(digest, list(state.items()))
    elif isinstance(state, list | tuple):
        for value in state:
            _update(digest, value)
    else:
        digest.update(repr(state).encode())


def slice_of(images: int) -> tuple[int, int]:
    """Where this process's slice of a batch begins and ends."""
    if _Team.size == 1:
        return 0, images
    return images * _Team.rank // _Team.size, images * (_Team.rank + 1) // _Team.size


def own_slice(batch: torch.Tensor) -> torch.Tensor:
    """This process's slice of a batch's image numbers; `per_image` follows it until the next batch."""
    if _Team.size == 1:
        return batch
    _Team.images = len(batch)
    _Team.begin, _Team.end = slice_of(len(batch))
    if _Team.images < 2 * _Team.size:
        raise expected(
            f"2 images or more for each of {_Team.size} processes",
            f"a batch of {_Team.images}",
            "change `batch_size` or `examples`: the last batch of an epoch is what is left over",
        )
    return batch[_Team.begin : _Team.end]


def share() -> float:
    """The share of the current batch that is this process's slice."""
    return (_Team.end - _Team.begin) / _Team.images


def per_image(
    draw: Callable[..., torch.Tensor], shape: tuple[int, ...], **options: Any
) -> torch.Tensor:
    """`draw(shape, **options)`, random numbers of which each image of the batch has its own.

    Where processes share the batch, the numbers of the whole batch are drawn and sliced. Use it for
    every such draw, and torch's functions for draws that do not belong to an image.
    """
    if not _Team.together:
        return draw(shape, **options)
    if shape[0] != _Team.end - _Team.begin:
        what = f"random numbers for the {_Team.end - _Team.begin} images of a process's slice"
        raise expected(what, f"for {shape[0]}", "say NEEDS_WHOLE_BATCH in the method")
    return draw((_Team.images, *shape[1:]), **options)[_Team.begin : _Team.end]


def summed(tensor: torch.Tensor) -> torch.Tensor:
    """The sum over all processes, in the layout of `tensor`."""
    if not _Team.together:
        return tensor
    total = _reduce(tensor.detach().clone(memory_format=torch.contiguous_format))
    return torch.empty_like(tensor).copy_(total)


def _reduce(tensor: torch.Tensor, how: str = "SUM") -> torch.Tensor:
    try:
        torch.distributed.all_reduce(tensor, getattr(torch.distributed.ReduceOp, how))
    except RuntimeError as error:
        found = f"the end of one ({str(error).splitlines()[0]})"
        remedy = "see what it said, then start again (a run continues from its checkpoint)"
        raise expected(f"all {_Team.size} processes to go on", found, remedy) from None
    return tensor
