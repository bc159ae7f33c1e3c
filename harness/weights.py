"""Averages and mixtures of networks, a handful of fused calls for all tensors at once.

BatchNorm statistics are averaged like weights; `num_batches_tracked`, an integer, is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.lazy import torch


def tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Parameters and floating-point buffers, in a fixed order."""
    state = [*model.parameters(), *model.buffers()]
    return [tensor.detach() for tensor in state if tensor.is_floating_point()]


def mix_into(
    target: torch.nn.Module,
    sources: Sequence[torch.nn.Module],
    weights: Sequence[float],
    decay: float,
) -> None:
    """target <- decay * target + (1 - decay) * sum_a weights_a * sources_a.

    Sources of weight 0 are skipped: a learner without a say changes no bit of the result.
    """
    mixed = tensors(target)
    with torch.no_grad():
        torch._foreach_mul_(mixed, decay)
        for source, weight in zip(sources, weights, strict=True):
            if weight != 0:
                torch._foreach_add_(mixed, tensors(source), alpha=(1 - decay) * weight)


def copy_into(target: torch.nn.Module, source: torch.nn.Module) -> None:
    with torch.no_grad():
        torch._foreach_copy_(tensors(target), tensors(source))


def distance(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """The l_2 distance of all parameters, over the norm of `other`'s."""
    with torch.no_grad():
        these, those = ([p.detach() for p in model.parameters()] for model in (one, other))
        gaps = torch._foreach_norm(torch._foreach_sub(these, those))
        sizes = torch._foreach_norm(those)
        return float(torch.stack(gaps).norm() / torch.stack(sizes).norm())
