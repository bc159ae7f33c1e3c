"""PGD of 20 steps against torchattacks and foolbox: same network, same batch, every image attacked.

`resnet18` is nearly all convolution, which runs at the processor's speed in every library: only
BatchNorm can be saved. Tried and not kept: fusing ReLU and shortcut into the convolutions by hand,
packing the weights beforehand (0 to 2 % of a gradient step); Winograd's F(4x4, 3x3) from 256
channels on (such a layer alone is 1.6 to 1.8 times as fast, an attack 1.08 to 1.12 times: its
kernels are four times the size, which probably evicts everything else from the cache). `tiny_wide`
is a network of the smoke scale. An evaluation also skips the images that are wrong before any
attack; that is not counted here.
"""

from __future__ import annotations

import foolbox
import torch
import torchattacks

from benchmarks.setting import digits, new_network
from benchmarks.timing import Row, faster, in_turn
from harness.attacks.attack import perturb
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.grid.build import fraction

BATCHES = {"resnet18": 32, "tiny_wide": 128}
ROUNDS = 2


def measure() -> list[Row]:
    return [against_peers(network, size) for network, size in BATCHES.items()]


def against_peers(network: str, size: int) -> Row:
    eps, step = fraction("8/255", "eps"), fraction("2/255", "step")
    pgd, batch, model = PGD(Ball("linf", eps), step, 20), digits(size), new_network(network)
    x, y = batch.x, batch.y
    model(x)  # BatchNorm sees some images
    model.eval()
    theirs = torchattacks.PGD(model, eps=float(eps), alpha=float(step), steps=20)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1))
    linf_pgd = foolbox.attacks.LinfPGD(abs_stepsize=float(step), steps=20)
    generator = torch.Generator().manual_seed(0)
    times = in_turn(
        {
            "ours": lambda: perturb(pgd, model, x, y, generator=generator),
            "torchattacks": lambda: theirs(x, y),
            "foolbox": lambda: linf_pgd(wrapped, x, y, epsilons=[float(eps)]),
        },
        ROUNDS,
    )
    ratios = {peer: times.ratio(peer, "ours") for peer in ("torchattacks", "foolbox")}
    note = " (" + ", ".join(f"{peer} {ratio:.2f}x" for peer, ratio in ratios.items()) + ")"
    what = f"PGD20 on {network}, {size} images, against the faster peer"
    return faster(what, min(ratios.values()), 1.3, note)
