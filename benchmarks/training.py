"""Training steps of ResNet-18 on batches of 32 images of 32x32, ten attack steps, on all cores.

The plain step is in `benchmarks/plain.py`. Signs are compared on a network that has learnt a
little; the result of ten steps on a trained network is compared below, with the columns. The peak
is the fastest matrix product of 2048 x 2048 in the same minute. Convolutions may exceed it: MKL's
product need not be the fastest thing that the processor can do. Mixing ResNet-18 is bound by
memory; the time of the loop depends on whether its temporaries are newly allocated.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from baselines.nt import NT
from benchmarks import plain
from benchmarks.setting import CLOCK, digits, lab_for, new_network, paper_method
from benchmarks.timing import Row, Times, faster, in_turn
from harness.attacks.attack import attack_view, input_gradient
from harness.attacks.losses import attack_cross_entropy
from harness.attacks.pgd import PGD
from harness.models.folding import frozen
from harness.training.learner import Average, Learner, Optim, Single
from harness.training.weights import copy_into, mix_into

BATCH, ROUNDS = 32, 3
LESSONS = 20  # steps of natural training before signs are compared
SIDE = 2048


def measure() -> list[Row]:
    return [*adversarial_step(), *mixing(), *against_trades()]


def taught() -> torch.nn.Module:
    learner = Single(NT(), Optim(lr=0.02, weight_decay=5e-4)).start(lab_for("resnet18", digits(1)))
    whole = digits(LESSONS * BATCH)
    for number in range(LESSONS):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        learner.step(replace(whole, x=whole.x[rows], y=whole.y[rows]), CLOCK)
    return learner.model


def adversarial_step() -> list[Row]:
    batch, method = digits(BATCH), paper_method("at")
    pgd, average = PGD.of(method.objective.threat), Average(0.999)
    learner = Learner(replace(method, average=average), lab_for("resnet18", batch))
    other = new_network("resnet18")
    lesson = taught()
    for model in (learner.model, other):
        copy_into(model, lesson)
    signs = equal_signs(lesson, other)
    rival = plain.AdversarialTraining(other, pgd, method.optim.lr, average.decay)
    matrix = torch.randn(SIDE, SIDE)
    times = in_turn(
        {
            "plain": lambda: rival.step(batch.x, batch.y),
            "ours": lambda: learner.step(batch, CLOCK),
            "product": lambda: [matrix @ matrix for _ in range(10)],
        },
        ROUNDS,
    )
    passes = 2 * pgd.steps + 3  # forward and to the image; the update also to the weights
    work = passes * BATCH * operations(lesson, batch.x[:1])
    return [
        faster("adversarial training step against the plain one", times.ratio("plain", "ours"), 1.6),
        Row("equal signs of the image gradient", f"{100 * signs:.3f} %", ">= 99.9 %", signs >= 0.999),
        share_of_peak(work, times),
    ]


def equal_signs(model: torch.nn.Module, same: torch.nn.Module) -> float:
    """Of the gradient that an attack sees: by our attacks' network and by the plain one."""
    batch = digits(BATCH, split="test")
    attack_loss = attack_cross_entropy(model, batch.x, batch.y)
    with attack_view(model) as network:
        ours = input_gradient(network, batch.x, attack_loss)
    with frozen(same):
        theirs = input_gradient(same, batch.x, attack_loss)
    return float((ours.sign() == theirs.sign()).float().mean())


def operations(model: torch.nn.Module, x: torch.Tensor) -> int:
    """Multiplications and additions of a forward pass, in convolutions and linear layers."""
    counted = []

    def count(layer: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        counted.append(2 * output.numel() * weight[0].numel())

    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, kinds)]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return sum(counted)


def share_of_peak(work: float, times: Times) -> Row:
    best = 10 * 2 * SIDE**3 / min(times.seconds["product"])
    reached = work / times.median("ours")
    found = f"{100 * reached / best:.0f} % ({reached / 1e9:.0f} of {best / 1e9:.0f} GFLOP/s)"
    return Row("share of the matrix product's peak", found, ">= 50 %", reached >= best / 2)


def mixing() -> list[Row]:
    names = {1: "weight average", 2: "mixing two learners", 3: "mixing three learners"}
    return [
        faster(f"{what} of {network} against a loop over state_dict", mixed(network, count), 8)
        for network in ("resnet18", "tiny_wide")
        for count, what in names.items()
    ]


def mixed(network: str, count: int) -> float:
    target, *sources = (new_network(network, seed) for seed in range(count + 1))
    weights = [1 / count] * count
    times = in_turn(
        {
            "loop": lambda: plain.mix(target, sources, weights, 0.999),
            "ours": lambda: mix_into(target, sources, weights, 0.999),
        },
        rounds=9,
    )
    return times.ratio("loop", "ours")


def against_trades() -> list[Row]:
    batch = digits(BATCH)
    slugs = ("generalist_d_nt_linf", "trades6")
    live = {slug: paper_method(slug).start(lab_for("resnet18", batch)) for slug in slugs}
    steps = {slug: lambda own=own: own.step(batch, CLOCK) for slug, own in live.items()}
    ratio = in_turn(steps, ROUNDS).ratio(*slugs)
    what = "Generalist-D (NT + l_inf) step, in TRADES steps (papers: 397 / 414 min)"
    return [Row(what, f"{ratio:.2f}", "<= 1.0", ratio <= 1)]
