"""Device, memory layout, precision, threads, malloc settings; torch, and torchvision, when needed.

Planning and reporting build every method's dataclass but run none; `import torch` costs 1.7 s per
process. Modules that both sides import write `from harness.machine.device import torch`: a proxy that
imports it on first use. It is not put into sys.modules: matplotlib and scipy look there and would load
torch.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from typing import TYPE_CHECKING, Any

from harness.core.errors import expected

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
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_SIGNATURES = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: list[Any] = []  # a torch Library lives as long as a reference to it


def pick_device(wanted: str = "auto") -> torch.device:
    """The device by name; `auto` is the first one that this machine has."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        wanted = next(name for name, there in available.items() if there)
    if not available.get(wanted.partition(":")[0], False):
        there = ", ".join(name for name, yes in available.items() if yes)
        raise expected(f"a device of this machine ({there})", wanted, "use --device auto")
    return torch.device(wanted)


def placed(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """The model on a device; on a CPU in channels_last, where convolutions are faster."""
    on_cpu = device.type == "cpu"
    layout = torch.channels_last if on_cpu else torch.contiguous_format
    return model.to(device, memory_format=layout)  # type: ignore[call-overload]


def autocast(device: torch.device, enabled: bool) -> torch.autocast:
    """bfloat16 where it is safe; weights are not cached, since a step may change them."""
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)


def compiled(model: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    """Compile the model in place; refuse if its logits are not the plain network's."""
    training = model.training
    with torch.no_grad():
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


def keep_memory() -> None:
    """Keep freed memory in the process. glibc would return each layer's activations to the system and
    fetch them again page by page, which takes a tenth of a small network's time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        mallopt(_M_MMAP_THRESHOLD, 2**30)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def import_torchvision() -> Any:
    """torchvision, beside any build of torch.

    Its default wheel fails to import beside a CPU-only torch ("operator torchvision::nms does not
    exist"), because its compiled operators are absent and it registers fake versions of them. We use
    none of them, so it is enough to declare them first. It costs 1.5 s, so import it where it is used.
    """
    if not _declared:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name, signature in _SIGNATURES.items():
            if not hasattr(torch.ops.torchvision, name):
                library.define(signature)
        _declared.append(library)
    import torchvision

    return torchvision


def torchvision_datasets() -> Any:
    import_torchvision()
    import torchvision.datasets

    return torchvision.datasets
