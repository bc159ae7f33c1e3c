"""Robust mode connectivity (RMC): Wang, Li, Liu, 2023 (arXiv 2303.10225): the row that Generalist++
prints (its text once says RAMP).

Two trained, frozen end models (parents): A = AT in l_inf, B = AT in l_2. A quadratic Bezier curve
theta(t) = (1-t)^2 A + 2t(1-t) w + t^2 B with w starting at (A+B)/2; each batch draws t ~ U(0,1),
attacks f_theta(t) by MSD, and descends CE + weight decay on theta(t) with respect to w alone. Deployed
is theta(t*): on a grid of t BatchNorm's statistics are re-estimated on training images, and t* has the
best worst-norm accuracy on held-out training images.

Crafting is in train mode: running statistics belong to no single t. It costs its two parents on top: 3
to 4 AT runs in all; the DAG trains the parents once.

Certain: curve, loss, MSD, selection by the worst norm; of the official recipe the learning rate (0.03
until half of the run, linear to a hundredth of it at 0.9, then constant), the weight decay (3e-4 for
its PreResNet, so for ResNet-18; 5e-4 for its WRN) and MSD with 10 steps in three norms (l_inf 2/255,
l_2 1, l_1 12 with MSD's own l_1 step), read in the released code.
Guesses: the grid (0, 0.1 ... 1; the released code shows 61 points and leaves the choice to its user);
the budget in the unified recipe (that of AT); that t* is judged by the radii that the curve is trained
with; which version of the released code was run (another one has l_inf 8/255).
Deviations: the official curve joins our unified rows AT and AT (l_2), which keep their recipe; the
released code trains ends of its own (150 or 200 epochs). Its README trains the curve for 200 epochs,
our official recipe for 50.
Compared: with curves.py and utils.py of wangren09/MCGR, one step in float64: 4e-15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from baselines.msd import MultiSteepest
from harness.attacks.attack import Attack, Threat, perturb
from harness.attacks.losses import cross_entropy
from harness.attacks.pgd import PGD
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab
from harness.training.learner import Optim, finite

_GRID = 10  # t = 0, 1/10, ..., 1
_AT_ONCE = 250


@dataclass(frozen=True)
class RMC:
    threats: tuple[Threat, ...]
    optim: Optim
    l1_coordinates: tuple[int, int] | None = None  # as in MultiSteepest

    REVISION: ClassVar[int] = 1
    NEEDS_WHOLE_BATCH: ClassVar[str] = "changes its network when it is deployed"
    PARENTS: ClassVar[tuple[int, ...]] = (2,)

    def __post_init__(self) -> None:
        MultiSteepest(self.threats, self.l1_coordinates)  # checks the fields

    @property
    def slug(self) -> str:
        return "rmc"

    def attack(self, threat: Threat) -> Attack:
        """The attack by which points of the curve are compared; PGD's l_1 step is too weak."""
        if threat.norm == "l1":
            return MultiSteepest((threat,), self.l1_coordinates)
        return PGD.of(threat)

    def start(self, lab: Lab) -> RMCTraining:
        return RMCTraining(self, lab)


class RMCTraining:
    def __init__(self, rmc: RMC, lab: Lab) -> None:
        self.rmc, self.lab = rmc, lab
        self.ends = [[p.detach() for p in parent.parameters()] for parent in lab.parents]
        middle = [(a + b) / 2 for a, b in zip(*self.ends, strict=True)]
        self.bend = torch.nn.ParameterList([torch.nn.Parameter(w) for w in middle])  # w
        self.model = lab.new_model()  # holds the present theta(t)
        self.generator = lab.generator("curve")
        # Weight decay acts on theta(t), not on w: `step` adds it.
        self.optimizer = torch.optim.SGD(
            self.bend.parameters(), lr=rmc.optim.lr, momentum=rmc.optim.momentum
        )

    def point(self, t: float) -> list[torch.Tensor]:
        """theta(t); at t = 0 and 1 exactly the ends."""
        start, end = self.ends
        return [
            (1 - t) ** 2 * a + 2 * t * (1 - t) * w.detach() + t**2 * b
            for a, w, b in zip(start, self.bend, end, strict=True)
        ]

    def _move_to(self, t: float) -> None:
        with torch.no_grad():
            torch._foreach_copy_(list(self.model.parameters()), self.point(t))

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        t = float(torch.rand(1, generator=self.generator, device=self.generator.device))
        self._move_to(t)
        model = self.model.train()
        attack = MultiSteepest(self.rmc.threats, self.rmc.l1_coordinates)
        adversarial = perturb(attack, model, batch.x, batch.y, generator=self.generator, mode="train")
        loss = cross_entropy(model(adversarial), batch.y).mean()
        value = finite(loss, clock, self.rmc.slug)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        lr, decay = self.rmc.optim.lr_at(clock), self.rmc.optim.weight_decay
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        with torch.no_grad():
            for w, gradient, theta in zip(self.bend, gradients, model.parameters(), strict=True):
                w.grad = 2 * t * (1 - t) * (gradient + decay * theta)  # d theta(t) / d w
        self.optimizer.step()
        return {"loss": value, "lr": lr, "t": t}

    def deployed(self) -> torch.nn.Module:
        scores = {step / _GRID: self._worst_norm(step / _GRID) for step in range(_GRID + 1)}
        self._move_with_statistics(max(scores, key=lambda t: scores[t]))
        return self.model

    def _move_with_statistics(self, t: float) -> None:
        """Move to theta(t) and re-estimate BatchNorm's statistics on training images."""
        self._move_to(t)
        layers = [m for m in self.model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean over batches
        self.model.train()
        with torch.no_grad():
            for images in self.lab.sample.x.split(_AT_ONCE):
                self.model(images)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        self.model.eval()

    def _worst_norm(self, t: float) -> float:
        """The smallest accuracy of theta(t) over the norms, on held-out training images."""
        self._move_with_statistics(t)
        images = self.lab.validation
        accuracies = []
        for threat in self.rmc.threats:
            generator, correct = self.lab.generator(f"judge {threat.norm}"), 0
            for x, y in zip(images.x.split(_AT_ONCE), images.y.split(_AT_ONCE), strict=True):
                attack = self.rmc.attack(threat)
                adversarial = perturb(attack, self.model, x, y, generator=generator)
                with torch.no_grad():
                    correct += int((self.model(adversarial).argmax(dim=1) == y).sum())
            accuracies.append(correct / len(images.y))
        return min(accuracies)

    def state_dict(self) -> dict[str, Any]:
        return {
            "bend": self.bend.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.bend.load_state_dict(state["bend"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
