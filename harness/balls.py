"""l_inf and l_2 balls around an image: projection, random points, steepest ascent.

All functions work on batches; `radius` is a number or a tensor that broadcasts against the batch,
so a per-pixel or per-example radius needs no code of its own. The box [0,1] is applied last: it
moves every coordinate towards the image, so it cannot raise any l_p norm of the difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from harness.errors import expected, unknown
from harness.lazy import torch

# Images live in [0,1]. A radius above these can only be a slip of scale (8 for 8/255).
_LARGEST = {"linf": 1, "l2": 7}
_TINY = 1e-12


@dataclass(frozen=True)
class Ball:
    """A norm and a radius on the [0,1] scale, exact: 0.031 is not 8/255."""

    norm: str
    eps: Fraction

    REVISION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.norm not in _LARGEST:
            raise unknown("norm", self.norm, _LARGEST, "a threat")
        if not 0 <= self.eps <= _LARGEST[self.norm]:
            raise expected(
                f"an {self.norm} radius on the [0,1] scale (0 to {_LARGEST[self.norm]})",
                f"eps = {self.eps}",
                f"write {self.eps}/255 if you meant grey levels",
            )

    @property
    def radius(self) -> float:
        return float(self.eps)


def _norms(delta: torch.Tensor) -> torch.Tensor:
    """The l_2 norm of each example, shaped to broadcast."""
    flat = delta.flatten(1).norm(dim=1)
    return flat.view(-1, *[1] * (delta.dim() - 1))


def project(norm: str, delta: torch.Tensor, radius: float | torch.Tensor) -> torch.Tensor:
    """The nearest perturbation whose norm is at most `radius`."""
    if norm == "linf":
        if isinstance(radius, torch.Tensor):
            return torch.minimum(torch.maximum(delta, -radius), radius)
        return delta.clamp(-radius, radius)
    return delta * (radius / _norms(delta).clamp_min(_TINY)).clamp(max=1.0)


def steepest(norm: str, gradient: torch.Tensor) -> torch.Tensor:
    """The unit-norm direction along which the loss rises fastest."""
    if norm == "linf":
        return gradient.sign()
    return gradient / (_norms(gradient) + _TINY)


def random_point(
    norm: str, x: torch.Tensor, radius: float | torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """A random image in ball and box: uniform for l_inf; Gaussian direction, uniform length, l_2."""
    if norm == "linf":
        noise = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        delta = (2 * noise - 1) * radius
    else:
        direction = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        shape = (x.shape[0], *[1] * (x.dim() - 1))
        length = torch.rand(shape, generator=generator, device=x.device, dtype=x.dtype)
        delta = steepest("l2", direction) * length * radius
    return (x + delta).clamp(0, 1)


def into(
    norm: str, x: torch.Tensor, candidate: torch.Tensor, radius: float | torch.Tensor
) -> torch.Tensor:
    """`candidate` moved into the ball around `x` and the box."""
    return (x + project(norm, candidate - x, radius)).clamp(0, 1)
