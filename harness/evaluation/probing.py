"""One batch under one probe, or under PGDs that share a run: who survives, and what it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import numpy as np
import torch
from torch import Tensor, nn

from harness.attacks.attack import Passes, counting, perturb
from harness.attacks.autoattack import listening
from harness.attacks.pgd import PGD, snapshots
from harness.evaluation.records import Record
from harness.grid.specs import Probe
from harness.models.networks import gradcam


def evaluate_batch(
    model: nn.Module, probe: Probe, x: Tensor, y: Tensor, generator: torch.Generator
) -> Record:
    """Who survives. An example that is wrong as it stands is lost already and is not attacked.

    An attack of several stages tries each on those who survived the ones before. Attacks see the
    folded copy of the network; every verdict is that of the network itself.
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
    maps = gradcam(model, x, predicted, enlarge=False).squeeze(1)
    return (255 * maps).round().to(torch.uint8).cpu().numpy()
