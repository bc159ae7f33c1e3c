"""Data parallel: K processes train one network, each on its slice of every batch.

How many is no part of a run (docs/decisions/0011-processes.md), and `batch_size` is that of the whole
batch. What one process computes and K compute together differs by the order of floating-point sums:
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from harness.core import process
from harness.core.errors import expected
from harness.machine.device import torch

_BUCKET_BYTES = 25 * 2**20  # one message costs a fixed time, and a copy in memory
_PATIENCE = timedelta(days=1)  # while the first process measures an epoch, the others wait


class _Team:
    """This process among the others, and its slice of the current batch."""

    rank, size = 0, 1
    device: torch.device | str = "cpu"
    begin, end, images = 0, 0, 0
    together = False  # False in a single process, and while the first one works alone
    later = False  # are gradients summed at the end of the backward pass?


def join(wanted: str) -> torch.device:
    """Connect to the processes that torchrun or `launch.start` started; the device of this one."""
    from harness.machine.device import pick_device

    size = int(os.environ.get("WORLD_SIZE", 1))
    if size == 1:
        return pick_device(wanted)
    rank, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if rank < gpus:
        torch.cuda.set_device(rank)  # each process tries its own
    device = pick_device(wanted)
    if device.type == "cuda":
        if gpus < int(os.environ["LOCAL_WORLD_SIZE"]):
            raise expected(f"{size} GPUs", gpus, "start fewer processes")
        device = torch.device("cuda", rank)
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


def size() -> int:
    """How many processes there are."""
    return _Team.size


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
        remedy = "train it with --data-parallel 1, or say NEEDS_WHOLE_BATCH in the method"
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


def summed_gradient(gradient: torch.Tensor) -> torch.Tensor:
    """A parameter's gradient, summed now or, within `bucketed`, later."""
    return gradient if _Team.later else summed(gradient)


@contextmanager
def bucketed(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """A backward pass whose gradients are summed at its end, as many at once as fit into a bucket.

    The parameters have no gradient yet. Without it, each gradient is summed as soon as it is there.
    """
    if not _Team.together:
        yield
        return
    _Team.later = True
    try:
        yield
    finally:
        _Team.later = False
    bucket: list[torch.Tensor] = []
    for gradient in [p.grad for p in parameters if p.grad is not None]:
        if bucket and sum(one.nbytes for one in bucket) + gradient.nbytes > _BUCKET_BYTES:
            _sum_together(bucket)
            bucket = []
        bucket.append(gradient)
    _sum_together(bucket)


def _sum_together(tensors: list[torch.Tensor]) -> None:
    """Replace each tensor by its sum over all processes, by one message for all of them."""
    total = _reduce(torch.cat([tensor.flatten() for tensor in tensors]))
    parts = total.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))


def _reduce(tensor: torch.Tensor, how: str = "SUM") -> torch.Tensor:
    try:
        torch.distributed.all_reduce(tensor, getattr(torch.distributed.ReduceOp, how))
    except RuntimeError as error:
        found = f"the end of one ({str(error).splitlines()[0]})"
        remedy = "see what it said, then start again (a run continues from its checkpoint)"
        raise expected(f"all {_Team.size} processes to go on", found, remedy) from None
    return tensor
