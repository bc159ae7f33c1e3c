"""Attacks and training steps in plain PyTorch, as a first version would be: the baseline for ours.

`loss.backward()` inside the attack, so gradients of the parameters too; every image attacked, even
those that are wrong already; BatchNorm not folded, the default layout; averages by a loop over
state_dict.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.attacks.balls import random_point
from harness.attacks.pgd import PGD


def attack(
    model: nn.Module, pgd: PGD, x: Tensor, y: Tensor, start: Tensor | None = None, seed: int = 0
) -> Tensor:
    """PGD, MIM and CW in l_inf."""
    eps, step = pgd.ball.radius, float(pgd.step)
    if start is None:
        start = random_point("linf", x, eps, torch.Generator().manual_seed(seed))
    adversarial, velocity = start, torch.zeros_like(x)
    model.eval()
    for _ in range(pgd.steps):
        adversarial = adversarial.detach().requires_grad_(True)
        logits = model(adversarial)
        if pgd.loss == "margin":
            own = logits.gather(1, y[:, None]).squeeze(1)
            others = logits.scatter(1, y[:, None], -torch.inf).amax(dim=1)
            loss = -(own - others + 50).clamp_min(0).sum()
        else:
            loss = F.cross_entropy(logits, y, reduction="sum")
        loss.backward()
        gradient = adversarial.grad
        assert gradient is not None
        if pgd.momentum is not None:
            velocity = pgd.momentum * velocity + gradient / gradient.abs().mean((1, 2, 3), True)
            gradient = velocity
        moved = adversarial.detach() + step * gradient.sign()
        adversarial = (x + (moved - x).clamp(-eps, eps)).clamp(0, 1)
    return adversarial


class AdversarialTraining:
    """PGD, an update, a weight average."""

    def __init__(self, model: nn.Module, pgd: PGD, lr: float, decay: float) -> None:
        self.model, self.pgd, self.decay = model, pgd, decay
        self.optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=5e-4)
        self.averaged = copy.deepcopy(model)

    def step(self, x: Tensor, y: Tensor) -> None:
        adversarial = attack(self.model, self.pgd, x, y)
        self.model.train()
        loss = F.cross_entropy(self.model(adversarial), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        mix(self.averaged, [self.model], [1.0], self.decay)


@torch.no_grad()
def mix(target: nn.Module, sources: list[nn.Module], weights: list[float], decay: float) -> None:
    states = [source.state_dict() for source in sources]
    for name, value in target.state_dict().items():
        if value.is_floating_point():
            mixed = sum(w * state[name] for w, state in zip(weights, states, strict=True))
            value.copy_(decay * value + (1 - decay) * mixed)
