"""APGD as a training attack: Croce & Hein, "Reliable evaluation ...", ICML 2020; for l_1 "Mind the
box: l_1-APGD", ICML 2021. It takes ten steps from the image itself and returns the point of highest
loss.

l_inf and l_2: the step size starts at 2 eps, with momentum 0.75. Checkpoints come after 22 % of the
steps and then at gaps that shrink by 3 % of the steps, down to 6 %. At a checkpoint an example
halves its step size and returns to its best point if its loss rose in at most 75 % of the steps
since the last one, or if neither its best loss nor its step size has changed since then.

l_1: the step size starts at eps. Each step moves only the coordinates of largest gradient, at first
5 % of them; later their number follows the sparsity of the perturbation. A step size that no longer
makes the perturbation sparser shrinks by 1.5, down to a tenth. Checkpoints come every 4 % of the
steps, so with ten steps at each one.

These are the settings of E-AT's released training code, not of AutoAttack. Evaluation does not use
this file: it uses AutoAttack's own code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from harness.attacks.attack import OneBall, attack_view, check_budget
from harness.attacks.balls import Ball, into, steepest
from harness.attacks.losses import cross_entropy
from harness.machine.device import torch

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Module

_MOMENTUM = 0.75
_RISES_WANTED = 0.75
_FIRST_SPARSITY = 0.05


@dataclass(frozen=True)
class Found:
    """The result of a search: best point, its loss, and who was right at every iterate."""

    best: Tensor
    loss: Tensor
    right: Tensor


@dataclass(frozen=True)
class APGD(OneBall):
    """PGD that adapts its step size for each example."""

    ball: Ball
    steps: int = 10

    REVISION: ClassVar[int] = 1

    @property
    def slug(self) -> str:
        return f"apgd{self.steps}_{self.ball.norm}"

    def __call__(self, model: Module, x: Tensor, y: Tensor, *, generator: Generator) -> Tensor:
        return self.search(model, x, y).best

    def search(self, model: Module, x: Tensor, y: Tensor) -> Found:
        loss, gradient, right = _evaluated(model, x, y)
        now, best = x.clone(), _Best(x, loss, gradient)
        rule = (_Sparse if self.ball.norm == "l1" else _Halving)(self.ball, x, loss)
        checkpoints = _checkpoints(self.steps, self.ball.norm)
        for step in range(1, self.steps + 1):
            now = rule.moved(now, gradient)
            loss, gradient, still = _evaluated(model, now, y)
            right = right & still
            rule.count(loss)
            best.update(now, loss, gradient)
            if step in checkpoints:
                back = _wide(rule.adapt(best), x)
                now = torch.where(back, best.point, now)
                gradient = torch.where(back, best.gradient, gradient)
        return Found(best.point, best.loss, right)


def _evaluated(model: Module, point: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, input gradient, and who is right."""
    point = point.detach().requires_grad_(True)
    with torch.enable_grad():
        logits = model(point)
        loss = cross_entropy(logits, y)
    gradient = torch.autograd.grad(loss.sum(), point)[0]
    return loss.detach(), gradient, logits.argmax(dim=1) == y


def _wide(values: Tensor, x: Tensor) -> Tensor:
    """One value per example, shaped to broadcast against the images."""
    return values.view(len(x), *[1] * (x.dim() - 1))


class _Best:
    """The point of highest loss so far, for each example."""

    def __init__(self, point: Tensor, loss: Tensor, gradient: Tensor) -> None:
        self.point, self.loss, self.gradient = point.clone(), loss.clone(), gradient.clone()

    def update(self, point: Tensor, loss: Tensor, gradient: Tensor) -> None:
        better = loss > self.loss
        self.loss = torch.where(better, loss, self.loss)
        self.point = torch.where(_wide(better, point), point, self.point)
        self.gradient = torch.where(_wide(better, point), gradient, self.gradient)


class _Halving:
    """Steps in l_inf and l_2: with momentum, and a size that halves at checkpoints."""

    def __init__(self, ball: Ball, x: Tensor, loss: Tensor) -> None:
        self.ball, self.x = ball, x
        self.size = torch.full((len(x),), 2.0 * ball.radius, device=x.device, dtype=x.dtype)
        self.before: Tensor | None = None  # the point before the current one
        self.rises, self.steps = torch.zeros_like(loss), 0  # since the last checkpoint
        self.last_loss = torch.zeros_like(loss)  # so the first step counts as a rise, as in E-AT
        self.best_then = loss.clone()
        self.halved_then = torch.ones(len(x), dtype=torch.bool, device=x.device)

    def moved(self, now: Tensor, gradient: Tensor) -> Tensor:
        norm, radius, x = self.ball.norm, self.ball.radius, self.x
        after = into(norm, x, now + _wide(self.size, x) * steepest(norm, gradient), radius)
        if self.before is not None:
            after = now + _MOMENTUM * (after - now) + (1 - _MOMENTUM) * (now - self.before)
        self.before = now
        return into(norm, x, after, radius)

    def count(self, loss: Tensor) -> None:
        self.rises += (loss > self.last_loss).float()
        self.last_loss = loss
        self.steps += 1

    def adapt(self, best: _Best) -> Tensor:
        """Halve the step size of some examples; these return to their best point."""
        stuck = (best.loss <= self.best_then) & ~self.halved_then
        back = (self.rises <= _RISES_WANTED * self.steps) | stuck
        self.size = torch.where(back, self.size / 2, self.size)
        self.halved_then, self.best_then = back, best.loss.clone()
        self.rises, self.steps = torch.zeros_like(self.rises), 0
        return back


class _Sparse:
    """Steps in l_1: along few coordinates, whose number follows the perturbation's sparsity."""

    def __init__(self, ball: Ball, x: Tensor, loss: Tensor) -> None:
        self.ball, self.x, self.pixels = ball, x, x.shape[1:].numel()
        self.size = torch.full((len(x),), ball.radius, device=x.device, dtype=x.dtype)
        self.share = torch.full((len(x),), _FIRST_SPARSITY, device=x.device)
        self.changed = torch.full((len(x),), float(self.pixels), device=x.device)

    def moved(self, now: Tensor, gradient: Tensor) -> Tensor:
        step = _wide(self.size, self.x) * _sparse_direction(gradient, self.share)
        return into("l1", self.x, now + step, self.ball.radius)

    def count(self, loss: Tensor) -> None:
        """The rule does not depend on the loss."""

    def adapt(self, best: _Best) -> Tensor:
        """Sparser examples return to their best point and first step size; others step shorter."""
        changed = (best.point - self.x).abs().gt(0).flatten(1).sum(dim=1).float()
        sparser = changed / self.changed.clamp_min(1) < 0.95
        self.share = (changed / self.pixels / 1.5).clamp(min=1 / self.pixels, max=1.0)
        longest = self.ball.radius
        shorter = (self.size / 1.5).clamp(min=longest / 10)
        self.size = torch.where(sparser, torch.full_like(self.size, longest), shorter)
        self.changed = changed
        return sparser


def _checkpoints(steps: int, norm: str) -> set[int]:
    """The steps after which the step size may change."""
    if norm == "l1":
        gap = max(int(0.04 * steps), 1)
        return set(range(gap, steps + 1, gap))
    gap, found, step = max(int(0.22 * steps), 1), set(), 0
    while (step := step + gap) <= steps:
        found.add(step)
        gap = max(gap - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1))
    return found


def _sparse_direction(gradient: Tensor, share: Tensor) -> Tensor:
    """The unit l_1 direction over a share of each example's largest coordinates."""
    size = gradient.abs().flatten(1)
    count = (share * size.shape[1]).round().clamp(1, size.shape[1]).long()
    rank = size.argsort(dim=1, descending=True).argsort(dim=1)
    mask = (rank < count[:, None]).to(gradient.dtype) / count[:, None]
    return gradient.sign() * mask.view_as(gradient)


def searched(attack: APGD, model: Module, x: Tensor, y: Tensor) -> Found:
    """`perturb` by APGD, with the losses and who was right throughout."""
    with attack_view(model) as network:
        found = attack.search(network, x, y)
    check_budget(attack, x, found.best)
    return found
