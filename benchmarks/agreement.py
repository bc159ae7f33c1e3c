"""AutoAttack through `harness.benchmark` against `pyautoattack` run directly, image by image.

Three networks are trained on attacked digits of 8x8 pixels: one of our classes, and two that are not
ours, one with BatchNorm (which is folded for attacks) and one without. Each is evaluated by `benchmark`
and by pyautoattack's standard version, both with AutoAttack's whole budget, on the same images in one
batch, at the set's own radius (l_inf 36/255). Both sides draw their own random numbers. How much that
matters is shown by pyautoattack against itself, with another seed.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from pyautoattack import AutoAttack
from torch import Tensor, nn

from benchmarks.timing import Row
from harness import benchmark
from harness.attacks.attack import perturb
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.data import load
from harness.evaluation.probing import listening
from harness.models.networks import new_model
from harness.training.batches import unit

IMAGES, EPOCHS, BATCH = 50, 8, 64
BALL = Ball("linf", Fraction(36, 255))


def strangers() -> dict[str, nn.Module]:
    """Two networks as anyone would write them."""
    layers: list[nn.Module] = []
    for before, after, stride in ((1, 16, 1), (16, 32, 2), (32, 32, 2)):
        layers += [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return {
        "not ours, with BatchNorm": nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10)),
        "not ours, fully connected": nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)
        ),
    }


def trained(model: nn.Module) -> nn.Module:
    x, y = pixels("train", None)
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    attack, generator = PGD(BALL, Fraction(12, 255), steps=4), torch.Generator().manual_seed(0)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            attacked = perturb(attack, model, x[rows], y[rows], generator=generator)
            optimizer.zero_grad()
            F.cross_entropy(model.train()(attacked), y[rows]).backward()
            optimizer.step()
    return model.eval()


def pixels(split: str, count: int | None) -> tuple[Tensor, Tensor]:
    images = load("digits", split).take(slice(count))
    return unit(torch.from_numpy(images.x)), torch.from_numpy(images.y)


def direct(model: nn.Module, seed: int) -> np.ndarray:
    """Who stands after pyautoattack's standard version, as its own documentation runs it."""
    x, y = pixels("test", IMAGES)
    attack = AutoAttack(model, norm="Linf", eps=BALL.radius, seed=seed, device="cpu")
    with torch.random.fork_rng(), listening():
        found, _ = attack.run_standard_evaluation(x, y, batch_size=IMAGES)
    with torch.no_grad():
        return (model(found).argmax(dim=1) == y).numpy()


def measure() -> list[Row]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    networks = {"ours (tiny ResNet)": new_model("tiny", 1, 10, seed=0), **strangers()}
    rows = []
    for name, network in networks.items():
        model = trained(network)
        with TemporaryDirectory() as folder:
            words = {"examples": IMAGES, "batch_size": IMAGES, "device": "cpu", "quiet": True}
            report = benchmark(model, data="digits", results=Path(folder), **words)
        ours = report.flags["AA"].to_numpy().astype(bool)
        theirs, again = direct(model, seed=0), direct(model, seed=1)
        standing = f"{ours.sum()} standing; {theirs.sum()} and {again.sum()} by pyautoattack"
        apart, scatter = int((ours != theirs).sum()), int((theirs != again).sum())
        found = f"{apart} of {IMAGES} flags differ; {scatter} between pyautoattack's two seeds"
        rows.append(Row(name, f"{found} ({standing})"))
    return rows
