"""RAMP: Jiang & Singh, NeurIPS 2024 (arXiv 2402.06827), Algorithm 1 and 2. Generalist++'s text names
it where its tables print RMC; here it is an extra row.

Per batch, APGD in both norms q, r: x_q, x_r. Loss: CE on the per-example worse of the two, judged
by the attacks' own losses in eval mode, plus lam * mean of KL(p(x_q) || p(x_r)) over the examples
that are right under q; x_r, x_q and the worse ones are forwarded in turn. Per epoch, gradient
projection: a natural epoch from the same start gives g_N, the robust epoch g_A (both differences of
weights), and per tensor W = W_0 + (1 - beta) g_A + beta max(cos(g_A, g_N), 0) g_N, BatchNorm's
running statistics included.

Certain: both parts, how the worse one is chosen, the order of forward passes, what is projected,
lam = 5, beta = 0.5. Guesses: the natural epoch uses the same optimizer settings and its own
momentum; the official weight decay and schedule (E-AT's).
Compared: with RAMP.py and utils.py of uiuc-focal-lab/RAMP, one step in float64: loss 4e-3, gradient
6e-2, projection 5e-17; APGD, the worse example and what is projected differed then and follow it
now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from baselines.nt import NT
from harness.attacks.apgd import APGD, searched
from harness.attacks.attack import Threat
from harness.attacks.losses import cross_entropy, kl
from harness.machine.device import torch
from harness.training.contracts import Batch, Clock, Lab, within
from harness.training.learner import Optim, Single
from harness.training.weights import copy_into, tensors


@dataclass(frozen=True)
class LogitPairing:
    """The robust objective: the worse norm's CE, and predictions that agree between the norms."""

    threats: tuple[Threat, Threat]
    lam: float

    @property
    def slug(self) -> str:
        return "ramp"

    def __call__(
        self, model: torch.nn.Module, batch: Batch, clock: Clock, generator: torch.Generator
    ) -> torch.Tensor:
        by_q, by_r = (searched(APGD(t.ball, t.steps), model, batch.x, batch.y) for t in self.threats)
        wide = (-1, *[1] * (batch.x.dim() - 1))
        x_worse = torch.where((by_q.loss > by_r.loss).view(wide), by_q.best, by_r.best)
        r, q = model(by_r.best), model(by_q.best)
        worse = cross_entropy(model(x_worse), batch.y).mean()
        right = q.argmax(dim=1) == batch.y
        pairing = (kl(q, r) * right).sum() / right.sum().clamp_min(1)
        return worse + self.lam * pairing


@dataclass(frozen=True)
class RAMP:
    threats: tuple[Threat, Threat]  # q, r
    optim: Optim
    lam: float = 5.0
    beta: float = 0.5

    REVISION: ClassVar[int] = 2  # 2: the worse example, APGD and projection of the released code
    NEEDS_WHOLE_BATCH: ClassVar[str] = "averages over the images that are right"
    PARENTS: ClassVar[tuple[int, ...]] = (0, 1)

    def __post_init__(self) -> None:
        within("lam", self.lam, 0)
        within("beta", self.beta, 0, 1)

    @property
    def slug(self) -> str:
        return "ramp"

    def start(self, lab: Lab) -> RAMPTraining:
        return RAMPTraining(self, lab)


class RAMPTraining:
    def __init__(self, ramp: RAMP, lab: Lab) -> None:
        self.ramp = ramp
        self.robust = Single(LogitPairing(ramp.threats, ramp.lam), ramp.optim).start(lab, "robust")
        self.natural = Single(NT(), ramp.optim).start(lab, "natural")
        for parent in lab.parents:  # fine-tuning: begin where the parent ended
            copy_into(self.robust.model, parent)
        self.origin = lab.new_model()  # W_0 of this epoch

    def step(self, batch: Batch, clock: Clock) -> Mapping[str, float]:
        if clock.step == 0:
            for model in (self.origin, self.natural.model):
                copy_into(model, self.robust.model)
        reported = self.robust.step(batch, clock)
        natural = self.natural.step(batch, clock)
        if clock.step == clock.steps_per_epoch - 1:
            self._project()
        return {**reported, "loss_nt": natural["loss"]}

    def _project(self) -> None:
        models = (self.origin, self.robust.model, self.natural.model)
        with torch.no_grad():
            for origin, robust, natural in zip(*(tensors(m) for m in models), strict=True):
                robust.copy_(projected(origin, robust - origin, natural - origin, self.ramp.beta))

    def deployed(self) -> torch.nn.Module:
        return self.robust.model

    def state_dict(self) -> dict[str, Any]:
        return {
            "robust": self.robust.state_dict(),
            "natural": self.natural.state_dict(),
            "origin": self.origin.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.robust.load_state_dict(state["robust"])
        self.natural.load_state_dict(state["natural"])
        self.origin.load_state_dict(state["origin"])


def projected(
    origin: torch.Tensor, robust: torch.Tensor, natural: torch.Tensor, beta: float
) -> torch.Tensor:
    scale = (robust.norm() * natural.norm()).clamp_min(1e-12)
    cosine = ((robust * natural).sum() / scale).clamp_min(0)
    return origin + (1 - beta) * robust + beta * cosine * natural
