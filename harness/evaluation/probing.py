"""One batch under one probe, or under PGDs that share a run: who survives, and what it took.

And the checks of a model: are its logits, gradients and accuracies what an attack can rely on? They run
inside the evaluation job, on a few images, and are kept with the records. A check that fails says what
was measured; the report marks the numbers that it touches. None of them stops anything.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from harness.attacks.attack import Passes, counting, input_gradient, perturb
from harness.attacks.autoattack import LOGGER
from harness.attacks.balls import Ball, random_point
from harness.attacks.losses import attack_cross_entropy, dlr
from harness.attacks.pgd import PGD, fgsm, snapshots
from harness.evaluation.records import Record
from harness.evaluation.trust import Check
from harness.grid.columns import Probe
from harness.machine.device import tf32
from harness.models.folding import frozen
from harness.models.networks import gradcam
from harness.training.batches import unit

EXAMPLES = 100
_STEPS = 10
_SWEEP = (Fraction(0), Fraction(1, 2), Fraction(1), Fraction(2))
_HUGE = {"linf": Fraction(1, 2), "l2": Fraction(6), "l1": Fraction(90)}
_ZERO_GRADIENTS = 0.05  # the share of examples without a gradient that is still believed
_BROKEN = 0.1  # accuracy under a huge perturbation that still counts as "about 0"


@tf32(False)
def evaluate_batch(
    model: nn.Module, probe: Probe, x: Tensor, y: Tensor, generator: torch.Generator
) -> Record:
    """Who survives. An example that is wrong as it stands is lost already and is not attacked.

    An attack of several stages tries each on those who survived the ones before. Attacks see the
    folded copy of the network; every verdict is that of the network itself, in full float32.
    """
    looked_at = x.clone() if probe.heat else x
    with counting(model) as passes, listening() as warnings, torch.no_grad():
        predicted = model(x).argmax(dim=1)
        broken_by = torch.where(predicted == y, -1, -2).to(torch.int8)
        for number, stage in enumerate(probe.attack.stages if probe.attack else ()):
            standing = (broken_by == -1).nonzero().squeeze(1)
            if not len(standing):
                break
            rows, labels = x[standing], y[standing]
            attacked = perturb(stage, model, rows, labels, generator=generator)
            predicted[standing] = model(attacked).argmax(dim=1)
            if probe.heat:
                looked_at[standing] = attacked
            broken_by[standing[predicted[standing] != labels]] = number
    record = _record(predicted, broken_by, passes, warnings)
    return replace(record, heat=heat(model, looked_at, predicted)) if probe.heat else record


@tf32(False)
def evaluate_family(
    model: nn.Module, family: list[Probe], x: Tensor, y: Tensor, generator: torch.Generator
) -> list[Record]:
    """What `evaluate_batch` says of each probe, where PGDs of rising steps share the longest one's run.

    Each record states the passes that its own attack would have made alone.
    """
    attacks = [probe.attack for probe in family if isinstance(probe.attack, PGD)]
    if len(family) == 1:
        return [evaluate_batch(model, family[0], x, y, generator)]
    with counting(model) as passes, torch.no_grad():
        natural = model(x).argmax(dim=1)
        standing = (natural == y).nonzero().squeeze(1)
        if not len(standing):
            return [evaluate_batch(model, probe, x, y, generator) for probe in family]
        rows, labels = x[standing], y[standing]
        taken = [
            (attacked, replace(passes))
            for attacked in snapshots(attacks, model, rows, labels, generator=generator)
        ]
    records = []
    for attacked, before in taken:
        with counting(model) as last, torch.no_grad():
            predicted, broken_by = natural.clone(), torch.where(natural == y, -1, -2)
            predicted[standing] = model(attacked).argmax(dim=1)
            broken_by[standing[predicted[standing] != labels]] = 0
        records.append(_record(predicted, broken_by, before + last))
    return records


@contextmanager
def listening() -> Iterator[set[str]]:
    """Collect the warnings that AutoAttack logs; the terminal shows none of them."""
    heard: set[str] = set()

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.add(record.getMessage().partition(" See ")[0])

    logger, collector = logging.getLogger(LOGGER), Collector(logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(collector)
    try:
        yield heard
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagate


def _record(
    predicted: Tensor, broken_by: Tensor, passes: Passes, warnings: Iterable[str] = ()
) -> Record:
    return Record(
        (broken_by == -1).cpu().numpy(),
        predicted.cpu().numpy().astype(np.int16),
        broken_by.cpu().numpy().astype(np.int8),
        **asdict(passes),
        warnings=tuple(sorted(warnings)),
    )


def heat(model: nn.Module, x: Tensor, predicted: Tensor) -> np.ndarray:
    """Grad-CAM at the size of the features: a reader can always enlarge it."""
    maps = gradcam(model, x, predicted).squeeze(1)
    return (255 * maps).round().to(torch.uint8).cpu().numpy()


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(dim=1) == y).float().mean())


@tf32(False)
def inspect(model: nn.Module, pixels: Tensor, y: Tensor, balls: dict[str, Ball]) -> list[Check]:
    """All checks of one model; `balls` are the threats it is evaluated under, by norm."""
    x, y = unit(pixels[:EXAMPLES]), y[:EXAMPLES]
    with frozen(model):
        checks = [deterministic(model, x), logits(model, x), gradients(model, x, y)]
        for norm, ball in balls.items():
            for check in (rescored, ordered, sweep):
                checks.append(replace(check(model, x, y, ball), norm=norm))
    return checks


@torch.no_grad()
def deterministic(model: nn.Module, x: Tensor) -> Check:
    difference = float((model(x) - model(x)).abs().max())
    found, ok = f"two passes differ by {difference:.2g}", difference < 1e-5
    found += "" if ok else ": AutoAttack's version for such networks is --attacks rand"
    return Check("deterministic logits", ok, found)


@torch.no_grad()
def logits(model: nn.Module, x: Tensor) -> Check:
    outputs = model(x)
    probabilities = bool((outputs >= -1e-5).all() & ((outputs.sum(dim=1) - 1).abs() < 1e-4).all())
    found = f"outputs from {float(outputs.min()):.3g} to {float(outputs.max()):.3g}"
    found += ", rows sum to 1" if probabilities else ""
    return Check("logits, not probabilities", not probabilities, found)


def gradients(model: nn.Module, x: Tensor, y: Tensor) -> Check:
    """On images that are right: no other is attacked, and DLR is constant where y ranks third."""
    with torch.no_grad():
        right = model(x).argmax(dim=1) == y
    x, y = (x[right], y[right]) if right.any() else (x, y)
    shares = {}
    for name, attack_loss in (("CE", attack_cross_entropy(model, x, y)), ("DLR", lambda z: dlr(z, y))):
        gradient = input_gradient(model, x, attack_loss).flatten(1)
        useless = (gradient == 0).all(dim=1) | ~torch.isfinite(gradient).all(dim=1)
        shares[name] = float(useless.float().mean())
    found = ", ".join(f"{100 * share:.0f} % without one for {name}" for name, share in shares.items())
    return Check("usable gradients", max(shares.values()) <= _ZERO_GRADIENTS, found)


def _generator(x: Tensor) -> torch.Generator:
    return torch.Generator(x.device).manual_seed(0)


def _pgd(ball: Ball, steps: int = _STEPS) -> PGD:
    return PGD(ball, ball.eps / 4, steps)


def rescored(model: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Check:
    """The attacked images at another batch size. `perturb` itself holds them to ball and box."""
    adversarial = perturb(_pgd(ball), model, x, y, generator=_generator(x))
    with torch.no_grad():
        together = model(adversarial).argmax(dim=1)
        apart = torch.cat([model(part).argmax(dim=1) for part in adversarial.split(7)])
    changed = int((together != apart).sum())
    return Check("same verdict at another batch size", changed == 0, f"{changed} of {len(y)} differ")


def ordered(model: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Check:
    noise = accuracy(model, random_point(ball.norm, x, ball.radius, _generator(x)), y)
    single = accuracy(model, perturb(fgsm(ball), model, x, y, generator=_generator(x)), y)
    many = accuracy(model, perturb(_pgd(ball), model, x, y, generator=_generator(x)), y)
    slack = 2 / len(y)
    found = f"noise {100 * noise:.0f} %, FGSM {100 * single:.0f} %, PGD {100 * many:.0f} %"
    return Check("noise, FGSM, PGD of rising strength", noise + slack >= single >= many - slack, found)


def sweep(model: nn.Module, x: Tensor, y: Tensor, ball: Ball) -> Check:
    """Accuracy against eps: the natural one at 0, falling, about 0 at a huge radius.

    Not in l_1: a step of PGD moves one coordinate, so that it never reaches most of an image.
    """
    radii = [ball.eps * share for share in _SWEEP] + [_HUGE[ball.norm]]
    radii = [min(radius, _HUGE[ball.norm]) for radius in radii]
    levels = []
    for radius in radii:
        attack = _pgd(Ball(ball.norm, radius), 2 * _STEPS)
        levels.append(accuracy(model, perturb(attack, model, x, y, generator=_generator(x)), y))
    slack = 2 / len(y)
    falling = all(later <= earlier + slack for earlier, later in pairwise(levels))
    natural = accuracy(model, x, y)
    pairs = zip(radii, levels, strict=True)
    found = ", ".join(f"{100 * level:.0f} % at {float(radius):.3g}" for radius, level in pairs)
    broken = levels[-1] <= _BROKEN or ball.norm == "l1"
    ok = falling and abs(levels[0] - natural) < 1e-9 and broken
    return Check("accuracy falls with eps to about 0", ok, found)
