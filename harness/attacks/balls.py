"""l_inf, l_2 and l_1 balls around an image: projection, random points, steepest ascent.

All functions work on batches. `radius` is a number or a tensor that broadcasts against the batch, so
it may differ by pixel or by example. The box [0,1] is applied last: it moves every coordinate
towards the image, so it raises no l_p norm of the difference. For l_1 that would leave the ball's
corners unused, so `into` projects on ball and box together, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from harness.core.errors import expected, unknown
from harness.machine.device import torch
from harness.machine.distributed import per_image

if TYPE_CHECKING:
    from torch import Generator, Tensor

# Images are in [0,1]. A larger radius is a mistake of scale (8 for 8/255).
_LARGEST = {"linf": 1, "l2": 7, "l1": 100}
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
        check_size(self.norm, "eps", self.eps)

    @property
    def radius(self) -> float:
        """eps as a float."""
        return float(self.eps)


def check_size(norm: str, name: str, size: Fraction) -> None:
    """Refuses a radius or a step that is negative or on the scale of grey levels."""
    if 0 <= size <= _LARGEST[norm]:
        return
    what = f"an {norm} size on the [0,1] scale (0 to {_LARGEST[norm]})"
    remedy = f"write {size}/255 if you meant grey levels" if 0 < size < 256 else "write 8/255"
    raise expected(what, f"{name} = {size}", remedy)


def _norms(delta: Tensor) -> Tensor:
    """The l_2 norm of each example, shaped to broadcast."""
    flat = delta.flatten(1).norm(dim=1)
    return flat.view(-1, *[1] * (delta.dim() - 1))


def project(norm: str, delta: Tensor, radius: float | Tensor) -> Tensor:
    """The nearest perturbation whose norm is at most `radius`."""
    if norm == "linf":
        if isinstance(radius, torch.Tensor):
            return torch.minimum(torch.maximum(delta, -radius), radius)
        return delta.clamp(-radius, radius)
    if norm == "l1":
        return _shrink(delta, torch.full_like(delta, torch.inf), radius)
    return delta * (radius / _norms(delta).clamp_min(_TINY)).clamp(max=1.0)  # l2


def _shrink(delta: Tensor, room: Tensor, radius: float | Tensor) -> Tensor:
    """The nearest d with sum |d_i| <= radius, |d_i| <= room_i and the signs of delta.

    It is d_i = min(max(|delta_i| - s, 0), room_i) for the one s >= 0 that meets the radius. The sum is
    piecewise linear in s, with corners where a coordinate leaves its room (|delta_i| - room_i) and
    where it becomes zero (|delta_i|): sort the corners, sum the slopes, solve on the right piece.
    Double precision, because the sums run over whole images.
    """
    size, room = delta.abs().flatten(1).double(), room.flatten(1).double()
    inside = torch.minimum(size, room)
    target = torch.as_tensor(radius, dtype=size.dtype, device=delta.device)
    corners = torch.cat([(size - room).clamp_min(0), size], dim=1)
    slopes = torch.cat([torch.full_like(size, -1.0), torch.ones_like(size)], dim=1)
    corners, order = corners.sort(dim=1)
    slopes = slopes.gather(1, order).cumsum(dim=1)
    falls = (slopes[:, :-1] * corners.diff(dim=1)).cumsum(dim=1)
    sums = inside.sum(dim=1, keepdim=True) + torch.cat([torch.zeros_like(falls[:, :1]), falls], dim=1)
    piece = ((sums > target).sum(dim=1, keepdim=True) - 1).clamp_min(0)
    over = (sums.gather(1, piece) - target).clamp_min(0)
    slope = slopes.gather(1, piece).clamp(max=-_TINY)
    threshold = torch.where(over > 0, corners.gather(1, piece) - over / slope, torch.zeros_like(over))
    kept = torch.minimum((size - threshold).clamp_min(0), room)
    return delta.sign() * kept.to(delta.dtype).view_as(delta)


def steepest(norm: str, gradient: Tensor, keep: float = 0.0) -> Tensor:
    """The unit-norm direction along which the loss rises fastest.

    For l_1 that is a single coordinate; `keep` > 0 spreads the step evenly over that share of the
    coordinates (at least one), which is how l_1 attacks make progress.
    """
    if norm == "linf":
        return gradient.sign()
    if norm == "l1":
        size = gradient.abs().flatten(1)
        count = max(1, round(keep * size.shape[1]))
        mask = torch.zeros_like(size).scatter_(1, size.topk(count, dim=1).indices, 1.0)
        return gradient.sign() * mask.view_as(gradient) / count
    return gradient / (_norms(gradient) + _TINY)


def random_point(norm: str, x: Tensor, radius: float | Tensor, generator: Generator) -> Tensor:
    """A random image in ball and box.

    l_inf: uniform. l_2: Gaussian direction, uniform length. l_1: Laplacian direction, uniform length.
    """
    options = {"generator": generator, "device": x.device, "dtype": x.dtype}
    if norm == "linf":
        noise = per_image(torch.rand, x.shape, **options)
        delta = (2 * noise - 1) * radius
    else:
        direction = per_image(torch.randn, x.shape, **options)
        shape = (x.shape[0], *[1] * (x.dim() - 1))
        length = per_image(torch.rand, shape, **options)
        if norm == "l1":
            uniform = per_image(torch.rand, x.shape, **options)
            direction = direction.sign() * -uniform.clamp_min(_TINY).log()
            sums = direction.abs().flatten(1).sum(dim=1).view(shape)
            delta = direction / sums * length * radius
        else:
            delta = steepest("l2", direction) * length * radius
    return (x + delta).clamp(0, 1)


def into(norm: str, x: Tensor, candidate: Tensor, radius: float | Tensor) -> Tensor:
    """`candidate` moved into the ball around `x` and the box."""
    if norm == "l1":
        delta = candidate - x
        return (x + _shrink(delta, torch.where(delta > 0, 1 - x, x), radius)).clamp(0, 1)
    return (x + project(norm, candidate - x, radius)).clamp(0, 1)
