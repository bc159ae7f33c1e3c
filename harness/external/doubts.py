"""Checks of a network that is not ours, beside those of every evaluation; which numbers to doubt.

An attack can fail because a network's outputs hide its margins. Probabilities of large logits are 0 and
1 in float32, and neither a gradient nor Square sees what lies between. So the images that all attacks
left standing are attacked once more: in double precision, on the margin between outputs that are taken
back to logits and brought to one size. If that breaks what plain PGD and all other attacks missed, the
network is less robust than the table says.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from harness.attacks.attack import perturb
from harness.attacks.balls import Ball, into, steepest
from harness.attacks.losses import margin
from harness.attacks.pgd import PGD
from harness.core.errors import expected
from harness.evaluation.records import Record, value
from harness.evaluation.trust import Check
from harness.external.question import NATURAL, Question
from harness.grid.columns import Column
from harness.machine.device import tf32
from harness.models.folding import frozen

IMAGES = 100
_STEPS = 20
_SHARE = 0.02  # of the images that are attacked again, or one, may fall
_TINY = 1e-300
_KEEP = 0.05  # of the coordinates of an l_1 step
_CHANGED = 0.002  # of the images may be classified otherwise than when they were recorded
RESCALED = "no attack on rescaled outputs does better"
OF_ALL = ("better than guessing",)  # checks that touch natural accuracy too
# Checks that a network which draws at random fails; the version `rand` is made for such.
OF_RANDOM = ("deterministic logits", "same verdict at another batch size")


@tf32(False)
def beyond(
    model: nn.Module, x: Tensor, y: Tensor, question: Question, records: Mapping[str, Record]
) -> list[Check]:
    """One check for each ball that was searched."""
    checks = []
    for ball in dict.fromkeys(c.balls for c in question.shown if len(c.balls) == 1 and c.attack):
        own = [c for c in question.shown if c.balls == ball and c.attack]
        left = np.logical_and.reduce([value(c.formula, records) for c in own])
        rows = torch.from_numpy(left.nonzero()[0][:IMAGES].copy())
        checks.append(_again(model, x[rows], y[rows], ball[0]))
    return checks


def _again(model: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Check:
    """Of images that stand: does the attack on rescaled outputs break what plain PGD does not?"""
    if not len(x):
        return Check(RESCALED, True, "no image was left to attack again", norm=ball.norm)
    plain = PGD(ball, ball.eps / 4, _STEPS)
    first = perturb(plain, model, x, y, generator=torch.Generator(x.device).manual_seed(0))
    second = rescaled(model, x, y, ball)
    with torch.no_grad():
        missed = (model(first).argmax(dim=1) == y) & (model(second).argmax(dim=1) != y)
    count = int(missed.sum())
    found = f"PGD on rescaled outputs broke {count} of {len(x)} images that all attacks left"
    return Check(RESCALED, count <= max(1, _SHARE * len(x)), found, norm=ball.norm)


def rescaled(model: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
    """PGD on the margin of the rescaled outputs, in double precision where the network can."""
    network, images = _double(model, x)
    now = images
    with frozen(network), torch.enable_grad():
        for step in range(_STEPS):
            point = now.detach().requires_grad_(True)
            gap = margin(logits(network(point)), y)
            loss = gap / gap.detach().abs().clamp_min(_TINY)
            (gradient,) = torch.autograd.grad(loss.sum(), point)
            size = ball.radius / (4 if step < _STEPS // 2 else 16)
            move = size * steepest(ball.norm, gradient.nan_to_num(), _KEEP)
            now = into(ball.norm, images, now + move, ball.radius).detach()
    # Back in float32 it must not lie outside by a rounding.
    return into(ball.norm, x, now.to(x.dtype), ball.radius * (1 - 1e-6))


def logits(outputs: Tensor) -> Tensor:
    """Outputs as logits: of probabilities the logarithm, of other numbers in [0,1] the log odds."""
    least = _TINY if outputs.dtype == torch.float64 else 1e-38
    if bool((outputs < 0).any() | (outputs > 1).any()):
        return outputs
    logs = outputs.clamp_min(least).log()
    if bool(((outputs.sum(dim=1) - 1).abs() < 1e-4).all()):
        return logs
    return logs - (1 - outputs).clamp_min(least).log()


def _double(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return model, x  # it has no deep copy
    try:
        network = copy.deepcopy(model).double()
        images = x.double()
        with torch.no_grad():
            network(images[:1])
        return network, images
    except Exception:  # a device without it, or a network that says float32 in its forward
        return model, x


@torch.no_grad()
@tf32(False)
def unchanged(
    predict: Callable[[slice], Tensor], y: np.ndarray, record: Record, batch_size: int, random: bool
) -> Check:
    """The recorded natural accuracy is that of the network at hand; another one is refused."""
    parts = [predict(slice(i, i + batch_size)).cpu().numpy() for i in range(0, len(y), batch_size)]
    now = np.concatenate(parts)
    live, kept = float((now == y).mean()), float(record.correct.mean())
    found = f"{100 * live:.2f} % now, {100 * kept:.2f} % recorded"
    differ = int((now != record.predicted).sum())
    most = max(1, _CHANGED * len(y))
    wide = max(most, 4 * np.sqrt(len(y) * max(kept * (1 - kept), 0.01)))
    if (abs(live - kept) * len(y) > wide) if random else differ > most:
        what = "the natural accuracy of the network at hand beside its records"
        found += "" if random else f", and {differ} of {len(y)} images classified otherwise"
        remedy = "delete its records (results/records/external-*) to compute them again"
        raise expected(what, found, remedy)
    return Check("recorded natural accuracy is the network's", True, found, columns=(NATURAL,))


def doubts(column: Column, checks: Iterable[Check]) -> list[str]:
    """The failed checks that touch a column; natural accuracy needs no gradients."""
    spared = OF_RANDOM if column.attack == "rand" else ()
    return [
        check.name
        for check in checks
        if not check.ok
        and check.touches(column)
        and (column.balls or check.name in OF_ALL)
        and check.name not in spared
    ]
