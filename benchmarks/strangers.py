"""AutoAttack on a network that is not ours: our evaluation against `pyautoattack` alone, one core.

The network is plain PyTorch with BatchNorm (six convolutions, no `FOLDS`), trained for a minute on
attacked digits of 32x32 pixels. Both sides run AutoAttack's standard version with a fifth of its
budget (20 steps, 1,000 queries), on the same 32 images in one batch. Ours includes the search for
layers to fold. Seconds are those of the processor, not of the clock: the machine was shared. Both sides
draw their own random numbers, so a few flags may differ. Two fifths of both sides are Square's forward
passes, which are nearly all convolution; FAB's projections are the same code on both sides.
"""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import pairwise

import torch
import torch.nn.functional as F
from pyautoattack import AutoAttack
from torch import Tensor, nn

from benchmarks import plain
from benchmarks.setting import CPU, digits
from benchmarks.timing import Row, faster, in_turn
from harness.attacks.autoattack import Cascade
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.evaluation.probing import evaluate_batch, listening
from harness.grid.columns import Probe
from harness.models.folding import use
from harness.models.tracing import fold_unknown

IMAGES, ROUNDS, STEPS, QUERIES = 32, 3, 20, 1000
BALL = Ball("linf", Fraction(24, 255))


class Stranger(nn.Module):
    """Pairs of convolutions with BatchNorm and ReLU; the second pair of each width halves the map."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [3, width, width, 2 * width, 2 * width, 4 * width, 4 * width]
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise(widths)):
            stride = 2 if number in (2, 4) else 1
            layers += [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean(dim=(2, 3)))


def trained() -> nn.Module:
    torch.manual_seed(0)
    model, batch = Stranger(), digits(1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    attack = PGD(BALL, Fraction(12, 255), steps=3)
    for epoch in range(3):
        for number, rows in enumerate(torch.randperm(len(batch.x)).split(50)):
            x, y = batch.x[rows], batch.y[rows]
            attacked = plain.attack(model, attack, x, y, seed=100 * epoch + number)
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(attacked), y).backward()
            optimizer.step()
    return model.eval()


def measure() -> list[Row]:
    torch.set_num_threads(1)
    model, batch = trained(), digits(IMAGES, split="test")
    x, y = batch.x, batch.y
    cascade = Cascade.standard(BALL, steps=STEPS, queries=QUERIES)
    probe = Probe("digits", IMAGES, cascade, IMAGES)
    said, left = "", {}

    def ours(fold: bool = True) -> None:
        nonlocal said
        use(model, None)
        said = (fold_unknown(model, x) or "") if fold else said
        record = evaluate_batch(model, probe, x, y, torch.Generator().manual_seed(0))
        left["ours" if fold else "unfolded"] = int(record.correct.sum())

    def theirs() -> None:
        attack = AutoAttack(model, norm="Linf", eps=BALL.radius, seed=0, device=CPU)
        for apgd in (attack.apgd, attack.apgd_targeted):
            apgd.n_iter = apgd.n_iter_orig = STEPS
            apgd.n_iter_2, apgd.n_iter_min = max(int(0.22 * STEPS), 1), max(int(0.06 * STEPS), 1)
            apgd.size_decr = max(int(0.03 * STEPS), 1)
        attack.fab.n_iter, attack.square.n_queries = STEPS, QUERIES
        with torch.random.fork_rng(), listening():
            found, _ = attack.run_standard_evaluation(x, y, batch_size=IMAGES)
        left["theirs"] = int((model(found).argmax(dim=1) == y).sum())

    sides = {"ours": ours, "unfolded": lambda: ours(False), "theirs": theirs}
    times = in_turn(sides, ROUNDS, warm_up=False, clock=time.process_time)
    each = ", ".join(f"{name} {times.median(name):.1f} s" for name in sides)
    ratios = [a / b for a, b in zip(times.seconds["theirs"], times.seconds["ours"], strict=True)]
    note = f" ({min(ratios):.2f} to {max(ratios):.2f} over {ROUNDS} rounds; {each})"
    ratio, unfolded = times.ratio("theirs", "ours"), times.ratio("theirs", "unfolded")
    counts = f"{left['ours']}; {left['unfolded']} unfolded, {left['theirs']} theirs"
    return [
        faster("AutoAttack on a network with BatchNorm against pyautoattack", ratio, 1.3, note),
        Row("the same without folding", f"{unfolded:.2f}x as fast"),
        Row("what was done to the network", said),
        Row(f"images of {IMAGES} left standing", counts),
    ]
