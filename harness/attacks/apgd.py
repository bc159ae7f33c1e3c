"""APGD as a training attack: Croce & Hein, "Reliable evaluation ...", ICML 2020; for l_1 "Mind the
box: l_1-APGD", ICML 2021. Ten steps from the image itself, the point of highest loss is the answer.

Step size starts at 2 eps (l_1: eps), with momentum 0.75. At checkpoints, after 22 % of the steps and
then ever sooner (3 % less each time, never under 6 %), an example whose loss rose in at most 75 % of
the steps since, or whose best loss stands still while its step size did too, halves its step and goes
back to its best point. For l_1 each step moves the largest gradient coordinates only; how many (at
first 5 %) follows the sparsity of the perturbation itself, and a step size that no longer makes it
sparser shrinks by 1.5, to no less than a tenth; both are reconsidered every 4 % of the steps, so with
ten steps at each. These are the settings of E-AT's released training code, not of AutoAttack.

Evaluation does not use this file: there AutoAttack's own code is the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.attacks.attack import perturb
from harness.attacks.balls import Ball, into, steepest
from harness.attacks.losses import cross_entropy
from harness.core.lazy import torch

_MOMENTUM = 0.75
_RISES_WANTED = 0.75
_FIRST_SPARSITY = 0.05


@dataclass(frozen=True)
class Found:
    """What an attack saw on its way: the best point, its loss, and who was right at every iterate."""

    best: torch.Tensor
    loss: torch.Tensor
    right: torch.Tensor


@dataclass(frozen=True)
class APGD:
    ball: Ball
    steps: int = 10

    REVISION: ClassVar[int] = 1

    @property
    def balls(self) -> tuple[Ball, ...]:
        return (self.ball,)

    @property
    def slug(self) -> str:
        return f"apgd{self.steps}_{self.ball.norm}"

    def __call__(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        generator: torch.Generator,
    ) -> torch.Tensor:
        return self.search(model, x, y).best

    def search(self, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Found:
        norm, radius = self.ball.norm, self.ball.radius
        wide = (len(x), *[1] * (x.dim() - 1))
        right = torch.ones(len(x), dtype=torch.bool, device=x.device)

        def look(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            nonlocal right
            point = point.detach().requires_grad_(True)
            with torch.enable_grad():
                logits = model(point)
                loss = cross_entropy(logits, y)
            right = right & (logits.argmax(dim=1) == y)
            return loss.detach(), torch.autograd.grad(loss.sum(), point)[0]

        loss, gradient = look(x)
        now, before = x.clone(), x.clone()
        best, best_loss, best_gradient = now.clone(), loss.clone(), gradient.clone()
        longest = radius * (1.0 if norm == "l1" else 2.0)
        size = torch.full(wide, longest, device=x.device, dtype=x.dtype)
        keep = torch.full((len(x),), _FIRST_SPARSITY, device=x.device)
        changed = torch.full((len(x),), float(x[0].numel()) if len(x) else 0.0, device=x.device)
        rises, last_loss = torch.zeros_like(loss), torch.zeros_like(loss)
        checkpoints, best_then = _checkpoints(self.steps, norm), best_loss.clone()
        halved_then = torch.ones(len(x), dtype=torch.bool, device=x.device)
        last_checkpoint = 0
        for step in range(1, self.steps + 1):
            if norm == "l1":
                direction = _sparse(gradient, keep)
                forward = into(norm, x, now + size * direction, radius)
                now, before = forward, now
            else:
                forward = into(norm, x, now + size * steepest(norm, gradient), radius)
                ahead = now + _MOMENTUM * (forward - now) + (1 - _MOMENTUM) * (now - before)
                now, before = into(norm, x, ahead if step > 1 else forward, radius), now
            loss, gradient = look(now)
            rises += (loss > last_loss).float()  # the first step counts as a rise, as in their code
            last_loss = loss
            better = loss > best_loss
            best_loss = torch.where(better, loss, best_loss)
            best = torch.where(better.view(wide), now, best)
            best_gradient = torch.where(better.view(wide), gradient, best_gradient)
            if step not in checkpoints:
                continue
            if norm == "l1":
                count = (best - x).abs().gt(0).flatten(1).sum(dim=1).float()
                reset = count / changed.clamp_min(1) < 0.95
                keep = (count / x[0].numel() / 1.5).clamp(min=1 / x[0].numel(), max=1.0)
                smaller = (size / 1.5).clamp(min=longest / 10)
                size = torch.where(reset.view(wide), torch.full_like(size, longest), smaller)
                changed = count
            else:
                since = step - last_checkpoint
                stuck = (best_loss <= best_then) & ~halved_then
                reset = (rises <= _RISES_WANTED * since) | stuck
                size = torch.where(reset.view(wide), size / 2, size)
                halved_then, best_then, rises = reset, best_loss.clone(), torch.zeros_like(rises)
            now = torch.where(reset.view(wide), best, now)
            gradient = torch.where(reset.view(wide), best_gradient, gradient)
            last_checkpoint = step
        return Found(best, best_loss, right)


@dataclass
class Remembered:
    """An attack for `perturb` that keeps what APGD saw, not its answer alone."""

    attack: APGD
    found: Found | None = None

    @property
    def balls(self) -> tuple[Ball, ...]:
        return self.attack.balls

    @property
    def slug(self) -> str:
        return self.attack.slug

    def __call__(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        generator: torch.Generator,
    ) -> torch.Tensor:
        self.found = self.attack.search(model, x, y)
        return self.found.best


def searched(
    attack: APGD,
    model: torch.nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    generator: torch.Generator,
) -> Found:
    """`perturb` by APGD, with its losses and who was right throughout."""
    remembered = Remembered(attack)
    perturb(remembered, model, x, y, generator=generator)
    assert remembered.found is not None
    return remembered.found


def _checkpoints(steps: int, norm: str) -> set[int]:
    """Steps at which the step size is reconsidered."""
    if norm == "l1":
        gap = max(int(0.04 * steps), 1)
        return set(range(gap, steps + 1, gap))
    gap, found, step = max(int(0.22 * steps), 1), set(), 0
    while (step := step + gap) <= steps:
        found.add(step)
        gap = max(gap - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1))
    return found


def _sparse(gradient: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """The unit l_1 direction over each example's own share of largest coordinates."""
    size = gradient.abs().flatten(1)
    count = (keep * size.shape[1]).round().clamp(1, size.shape[1]).long()
    rank = size.argsort(dim=1, descending=True).argsort(dim=1)
    mask = (rank < count[:, None]).to(gradient.dtype) / count[:, None]
    return gradient.sign() * mask.view_as(gradient)
