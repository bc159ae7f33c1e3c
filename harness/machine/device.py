"""Device, memory layout, arithmetic, threads, malloc settings; torch, and torchvision, when needed.

Planning and reporting build every method's dataclass but run none; `import torch` costs 1.7 s per
process. Modules that both sides import write `from harness.machine.device import torch`: a proxy that
imports it on first use. It is not put into sys.modules: matplotlib and scipy look there and would load
torch.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.core.errors import expected
from harness.machine.gpus import devices

if TYPE_CHECKING:
    import torch as torch
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(importlib.import_module(self._name), attribute)
            setattr(self, attribute, value)  # the next look-up is a plain one
            return value

    torch = _Lazy("torch")


DEVICES = ("auto", "cuda", "mps", "cpu")
_NO_MEMORY = r"[\w ]*(out of memory|(can't|Unable to) allocate|ALLOC_FAILED)((?!\. )[^\n])*"
_OUT_OF_MEMORY = re.compile(rf"{_NO_MEMORY}(\. Tried to allocate [\d.]+ \w+)?")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[Any] = []  # a torch Library lives as long as a reference to it


def pick_device(wanted: str = "auto") -> torch.device:
    """The device by name; `auto` is the first one that this machine has.

    A GPU that is there, or was given to this job, must work: a CPU in its place, without a word, would
    take weeks.
    """
    gpus = devices(os.environ)
    available = {
        "cuda": torch.cuda.is_available() or bool(gpus),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        wanted = next(name for name, there in available.items() if there)
    if not available.get(wanted.partition(":")[0], False):
        there = ", ".join(name for name, yes in available.items() if yes)
        raise expected(f"a device of this machine ({there})", wanted, "use --device auto")
    device = torch.device(wanted)
    if device.type == "cuda":
        _try(device, ", ".join(gpus))
    return device


def _try(device: torch.device, gpus: str) -> None:
    """Add two numbers on a GPU: an old driver, or a torch without code for the card, shows here."""
    try:
        torch.ones(1, device=device).add_(1).item()
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        gpu = f"GPU {gpus or device}, which is in this machine or was given to this job"
        remedy = "install the build of torch for its driver (docs/installing.md), or take the CPU: "
        remedy += "--device cpu (Snakemake: --config device=cpu)"
        what, found = f"torch {torch.__version__} to compute on {gpu}", str(error).partition("\n")[0]
        raise expected(what, found, remedy) from None


def placed(
    model: torch.nn.Module, device: torch.device, channels_last: bool | None = None
) -> torch.nn.Module:
    """The model on a device; in channels_last where that is faster: unless said, on a CPU only."""
    last = device.type == "cpu" if channels_last is None else channels_last
    layout = torch.channels_last if last else torch.contiguous_format
    return model.to(device, memory_format=layout)  # type: ignore[call-overload]


@contextmanager
def tf32(wanted: bool | None) -> Iterator[None]:
    """TF32 in convolutions and matrix products, or full float32 in both; None leaves it to torch.

    On a GPU torch's own choice is TF32, with 10 bits of mantissa, in convolutions. Whether an image is
    classified correctly is decided under `tf32(False)`, everywhere.
    """
    places: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [place.allow_tf32 for place in places]
    try:
        for place in places if wanted is not None else ():
            place.allow_tf32 = wanted
        yield
    finally:
        for place, allowed in zip(places, before, strict=True):
            place.allow_tf32 = allowed


@dataclass(frozen=True)
class Arithmetic:
    """How the steps of a training compute on a GPU; on a CPU only `amp` makes a difference."""

    amp: bool = False  # under autocast, in bfloat16
    tf32: bool | None = None  # None: as torch has it
    deterministic: bool = False  # the same bits every time

    @contextmanager
    def applied(self) -> Iterator[None]:
        """For a training: its batches have one shape, so cuDNN may look for its fastest algorithms."""
        cudnn: Any = torch.backends.cudnn
        before = cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        try:
            cudnn.benchmark = not self.deterministic  # the fastest may be another one next time
            torch.use_deterministic_algorithms(self.deterministic)
            with tf32(self.tf32):
                yield
        except RuntimeError as error:
            if not self.deterministic or "deterministic" not in str(error):
                raise
            remedy = "take `deterministic` out of the recipe"
            found = str(error).partition(".")[0]
            raise expected("operations that give the same bits every time", found, remedy) from None
        finally:
            cudnn.benchmark = before[0]
            torch.use_deterministic_algorithms(before[1])

    def channels_last(self, device: torch.device) -> bool:
        """On a GPU: do convolutions run in bfloat16 or TF32, for which that layout is made?"""
        if device.type == "cuda":
            return self.amp or self._has_tf32(device, torch.backends.cudnn)
        return device.type == "cpu"

    def as_json(self, device: torch.device) -> dict[str, bool]:
        """What a training that is under way computes with, for run.json."""
        return {
            "bf16": self.amp,
            "tf32_convolutions": self._has_tf32(device, torch.backends.cudnn),
            "tf32_products": self._has_tf32(device, torch.backends.cuda.matmul),
            "deterministic": self.deterministic or device.type == "cpu",
        }

    def _has_tf32(self, device: torch.device, place: Any) -> bool:
        allowed = place.allow_tf32 if self.tf32 is None else self.tf32
        has = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        return has and allowed


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """bfloat16 where it is safe; weights are not cached, since a step may change them."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def compiled(model: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    """Compile the model in place; refuse if its logits are not the plain network's."""
    training = model.training
    with torch.no_grad(), tf32(False):
        plain = model.eval()(x)
        model.compile()
        found = model(x)
    if not torch.allclose(plain, found, rtol=1e-3, atol=1e-4):
        raise expected(
            "the plain network's logits from torch.compile",
            f"a difference of {float((plain - found).abs().max()):.2g}",
            "leave `compile` out of the recipe",
        )
    return model.train(training)


def set_up(threads: int) -> None:
    """Set up a process before it computes: torch does not read Snakemake's number of threads."""
    torch.set_num_threads(threads)
    keep_memory()


@contextmanager
def enough_memory(what: str, remedy: str) -> Iterator[None]:
    """The out-of-memory error of torch or numpy as one that says which number to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        said = _OUT_OF_MEMORY.search(str(error))
        if said is None:
            raise
        found = said.group().strip(" .").replace(". Tried", ", tried")
        raise expected(f"enough memory for {what}", found, remedy) from None


def keep_memory() -> None:
    """Keep freed memory in the process. glibc would return each layer's activations to the system and
    fetch them again page by page, which takes a tenth of a small network's time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def import_torchvision() -> Any:
    """torchvision, beside any build of torch. It costs 1.5 s, so import it where it is used.

    Beside a CPU-only torch its default wheel fails to import: its compiled operators do not load, and
    it registers fake versions of two of them. We use neither, so it is enough to declare them. Declared
    before a torchvision whose operators do load, they would end the process.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if _declared or "operator torchvision::nms does not exist" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(name + _SIGNATURE)
        _declared.append(library)
        import torchvision

    return torchvision


def torchvision_datasets() -> Any:
    import_torchvision()
    import torchvision.datasets

    return torchvision.datasets
