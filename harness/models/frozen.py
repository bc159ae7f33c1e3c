"""A network as an attack or Grad-CAM may see it: nothing of it changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.core.lazy import torch


@contextmanager
def frozen(model: torch.nn.Module, mode: str = "eval") -> Iterator[None]:
    """The model as an attack may see it; mode, buffers and requires_grad are given back."""
    training = [(module, module.training) for module in model.modules()]
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    buffers = [b.clone() for b in model.buffers()] if mode == "train" else []
    model.train(mode == "train")
    for parameter, _ in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, flag in wanted:
            parameter.requires_grad_(flag)
        with torch.no_grad():
            for buffer, kept in zip(model.buffers(), buffers, strict=False):
                buffer.copy_(kept)
