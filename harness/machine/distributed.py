"""Data parallel: K processes train one network, each on its slice of every batch.

A recipe with `data_parallel: K` asks for it; `batch_size` stays that of the whole batch. What one
process computes and K compute together differs by the order of floating-point sums alone:
- a draw of one number per image is made for the whole batch and sliced, so each image is augmented,
  and each attack started, as in one process;
- BatchNorm in train mode takes its statistics over all slices (a layer for gloo and nccl alike);
- a loss is a mean over images: its gradient is scaled at the logits by the slice's share, and summed
  over the processes as each parameter gets it, whether by `backward` or by `autograd.grad`.
So a method needs to know nothing, as long as its loss is such a mean and its draws are per image; one
that knows better says `NEEDS_WHOLE_BATCH` and is refused. Every checkpoint compares all processes.

All of it hangs on the networks that a lab hands out (`spread`) and on batches (`mine`); in a single
process each function here returns what it is given. Sums are neither bundled nor overlapped with the
backward pass: beside an attack's passes that is small, beside natural training it is not.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor, distributed, nn
from torch.overrides import TorchFunctionMode

from harness.core import stopping
from harness.core.errors import expected
from harness.machine.device import pick_device

_SECONDS_TO_LEAVE = 120  # after SIGTERM: a step, and a checkpoint
_PATIENCE = timedelta(days=1)  # while the first process judges an epoch, the others wait
_DRAWS = (torch.rand, torch.randn, torch.randint)


class _Team:
    """This process among the others, and which images of the current batch are its own."""

    rank, size = 0, 1
    device = torch.device("cpu")
    begin, end, images = 0, 0, 0
    together = False  # False: in one process, or where the first acts alone


def launch(processes: int) -> None:
    """This command again, in so many processes, as torchrun does it; ends with a failure's code."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    meeting = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",  # a name server may not know this machine
        max_restarts=0,
        shutdown_timeout=_SECONDS_TO_LEAVE,
    )
    try:
        elastic_launch(meeting, sys.executable)("-m", "harness", "train", *sys.argv[1:])
    except SignalException:  # passed on to all, who have left
        raise SystemExit(stopping.CODE) from None
    except ChildFailedError as failed:
        _, first = failed.get_first_failure()
        raise SystemExit(first.exitcode if first.exitcode > 0 else 1) from None


def launched() -> bool:
    return "WORLD_SIZE" in os.environ


def join(data_parallel: int | None, wanted: str) -> torch.device:
    """Meet the other processes, if the recipe has any; the device of this one."""
    device, size = pick_device(wanted), data_parallel or 1
    found = int(os.environ.get("WORLD_SIZE", 1))
    if found != size:
        raise expected(
            f"{size} processes, as the recipe's data_parallel says", found, "start without torchrun"
        )
    if size == 1:
        return device
    if device.type == "cuda":
        if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):
            raise expected(f"{size} GPUs", torch.cuda.device_count(), "lower data_parallel")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")  # gloo knows no other
    stopping.hold()  # all leave after the same step, none at once
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_PATIENCE)
    _Team.rank, _Team.size, _Team.device = distributed.get_rank(), size, device
    _Team.together = True
    return device


def leave() -> None:
    if _Team.size > 1:
        distributed.destroy_process_group()


def leads() -> bool:
    """Is this the process that writes, judges and speaks?"""
    return _Team.rank == 0


@contextmanager
def alone() -> Iterator[None]:
    """Networks work by themselves here: the other processes are elsewhere."""
    before, _Team.together = _Team.together, False
    try:
        yield
    finally:
        _Team.together = before


def _reduce(tensor: Tensor, how: Any = distributed.ReduceOp.SUM) -> Tensor:
    try:
        distributed.all_reduce(tensor, how)
    except RuntimeError as error:
        raise expected(
            f"all {_Team.size} processes to go on",
            f"the end of one ({str(error).splitlines()[0]})",
            "see what it said, then start again (a run continues from its checkpoint)",
        ) from None
    return tensor


def wait() -> None:
    if _Team.size > 1:
        _reduce(torch.zeros(1, device=_Team.device)).item()


def agree(*flags: bool) -> tuple[bool, ...]:
    """What any process says; the same answer in all."""
    if _Team.size == 1:
        return flags
    said = torch.tensor(flags, dtype=torch.int32, device=_Team.device)
    return tuple(bool(flag) for flag in _reduce(said, distributed.ReduceOp.MAX).tolist())


def mean(reported: Mapping[str, float]) -> Mapping[str, float]:
    """Of the whole batch, from what each process reports of its slice."""
    if _Team.size == 1:
        return reported
    values = torch.tensor([*reported.values()], dtype=torch.float64, device=_Team.device)
    return dict(zip(reported, _reduce(values * _share()).tolist(), strict=True))


def compare(state: Any) -> None:
    """Refuse to go on with processes that have drifted apart."""
    if _Team.size == 1:
        return
    digest = hashlib.sha256()
    _absorb(state, digest)
    number = int.from_bytes(digest.digest()[:7], "big")
    both = torch.tensor([number, -number], dtype=torch.int64, device=_Team.device)
    largest, smallest = _reduce(both, distributed.ReduceOp.MAX).tolist()
    if largest != -smallest:
        raise expected(
            f"the same state in all {_Team.size} processes",
            "states that differ: something was drawn or decided for a slice alone",
            "take data_parallel out of the recipe, or say NEEDS_WHOLE_BATCH in the method",
        )


def _absorb(state: Any, digest: Any) -> None:
    if isinstance(state, Tensor):
        digest.update(state.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    elif isinstance(state, Mapping):
        for key, value in state.items():
            digest.update(str(key).encode())
            _absorb(value, digest)
    elif isinstance(state, list | tuple):
        for value in state:
            _absorb(value, digest)
    else:
        digest.update(repr(state).encode())


def mine(index: Tensor) -> Tensor:
    """This process's slice of a batch."""
    if _Team.size == 1:
        return index
    _Team.images = len(index)
    _Team.begin, _Team.end = (_Team.images * r // _Team.size for r in (_Team.rank, _Team.rank + 1))
    if _Team.images < 2 * _Team.size:
        raise expected(
            f"2 images or more for each of {_Team.size} processes",
            f"a batch of {_Team.images}",
            "change `batch_size` or `examples`: the last batch of an epoch is what is left over",
        )
    return index[_Team.begin : _Team.end]


def _share() -> float:
    return (_Team.end - _Team.begin) / _Team.images


def drawing() -> AbstractContextManager[Any]:
    """Draws of a number per image are those of the whole batch."""
    return nullcontext() if _Team.size == 1 else _WholeBatch()


class _WholeBatch(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in _DRAWS:
            place = next((n for n, own in enumerate(args) if isinstance(own, tuple | list)), None)
            if place is not None and tuple(args[place][:1]) == (_Team.end - _Team.begin,):
                shape = (_Team.images, *args[place][1:])
                whole = function(*args[:place], shape, *args[place + 1 :], **kwargs)
                return whole[_Team.begin : _Team.end]
        return function(*args, **kwargs)


def spread(model: nn.Module) -> nn.Module:
    """A network that learns together with its copies in the other processes."""
    if _Team.size == 1:
        return model
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm2d
        elif isinstance(module, nn.modules.batchnorm._NormBase):
            raise expected("BatchNorm2d in a network", type(module).__name__, "train it alone")
    for parameter in model.parameters():
        parameter.register_hook(_summed)
    model.register_forward_hook(_weigh)
    return model


def _weigh(module: nn.Module, inputs: Any, logits: Tensor) -> None:
    """The slice's part of the batch's mean; an attack's gradients stay as they are."""
    if logits.requires_grad and next(module.parameters()).requires_grad:
        logits.register_hook(lambda gradient: gradient * _share())


def _summed(tensor: Tensor) -> Tensor:
    if not _Team.together:
        return tensor
    total = _reduce(tensor.detach().clone(memory_format=torch.contiguous_format))
    return torch.empty_like(tensor).copy_(total)  # in the layout that it had


class _Sum(torch.autograd.Function):
    """Over the processes. A sum reaches the losses of all of them, so its gradient is a sum too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return _summed(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _summed(gradient)


class SharedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm over the whole batch; in eval mode, and alone, the usual one with the same tensors."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and _Team.together):
            return super().forward(x)
        wide, values, dims = (1, -1, 1, 1), x.to(self.weight.dtype), (0, 2, 3)
        count = values.new_tensor([x.numel() / x.shape[1]])
        sums = _Sum.apply(torch.cat([values.sum(dims), count]))
        number = sums[-1].detach()
        centre = sums[:-1] / number
        values = values - centre.view(wide)
        variance = _Sum.apply(values.square().sum(dims)) / number
        scale = (variance + self.eps).rsqrt() * self.weight
        self._remember(centre.detach(), variance.detach() * number / (number - 1))
        return (values * scale.view(wide) + self.bias.view(wide)).to(x.dtype)

    def _remember(self, centre: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1 / int(self.num_batches_tracked)
        with torch.no_grad():
            for own, new in ((self.running_mean, centre), (self.running_var, variance)):
                assert own is not None
                own.copy_((1 - momentum) * own + momentum * new)
