"""Averages, mixtures and distances of networks, by a few fused calls for all tensors at once.

BatchNorm statistics are averaged like weights; `num_batches_tracked`, an integer, is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from harness.machine.device import torch

# Visiting a network's layers costs more than mixing a small one, so the places of its tensors are
# cached: a layer's dictionary and a name in it. The tensors themselves may be replaced.
_places: WeakKeyDictionary[torch.nn.Module, list[tuple[dict[str, Any], str]]] = WeakKeyDictionary()


def tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Parameters and floating-point buffers, in a fixed order."""
    return [tensor.detach() for tensor in _state(model)]


def _state(model: torch.nn.Module) -> list[torch.Tensor]:
    places = _places.get(model)
    if places is None:
        owners = [own for m in model.modules() for own in (m._parameters, m._buffers)]
        places = [
            (own, name)
            for own in owners
            for name, tensor in own.items()
            if tensor is not None and tensor.is_floating_point()
        ]
        _places[model] = places
    return [own[name] for own, name in places]


def mix_into(
    target: torch.nn.Module, sources: Sequence[torch.nn.Module], weights: Sequence[float], decay: float
) -> None:
    """target <- decay * target + (1 - decay) * sum_a weights_a * sources_a; the weights sum to 1.

    One interpolation per source; its step allows for what the later ones take from it. Sources of
    weight 0 are skipped, so that they change no bit of the result.
    """
    steps, left = [], 1.0
    for source, weight in zip(reversed(sources), reversed(weights), strict=True):
        if weight != 0:
            steps.append((source, (1 - decay) * weight / left))
            left -= (1 - decay) * weight
    mixed = _state(target)
    with torch.no_grad():
        for source, step in reversed(steps):
            torch._foreach_lerp_(mixed, _state(source), step)


def copy_into(target: torch.nn.Module, source: torch.nn.Module) -> None:
    """Overwrite `target`'s tensors by `source`'s."""
    with torch.no_grad():
        torch._foreach_copy_(_state(target), _state(source))


def spread(
    models: Sequence[torch.nn.Module], weights: Sequence[float], centre: torch.nn.Module | None
) -> float:
    """sum_a weights_a |theta_a - centre|^2 over all parameters; the weights sum to 1. Without a centre,
    around the weighted mean sum_a weights_a theta_a."""
    with torch.no_grad():
        points = [[p.detach() for p in model.parameters()] for model in models]
        if centre is None:
            middle = [p.clone() for p in points[0]]  # so that equal points are exactly their mean
            for point, weight in zip(points[1:], weights[1:], strict=True):
                torch._foreach_add_(middle, torch._foreach_sub(point, points[0]), alpha=weight)
        else:
            middle = [p.detach() for p in centre.parameters()]
        return sum(
            weight
            * float(torch.stack(torch._foreach_norm(torch._foreach_sub(point, middle))).norm()) ** 2
            for point, weight in zip(points, weights, strict=True)
        )


def distance(one: torch.nn.Module, other: torch.nn.Module) -> float:
    """The l_2 distance of all parameters, relative to the norm of `other`."""
    with torch.no_grad():
        these, those = ([p.detach() for p in model.parameters()] for model in (one, other))
        gaps = torch._foreach_norm(torch._foreach_sub(these, those))
        sizes = torch._foreach_norm(those)
        return float(torch.stack(gaps).norm() / torch.stack(sizes).norm())
