"""All eleven columns of cvpr23_table1a for one network: 250 digits, an adversarially trained `tiny`,
AutoAttack with its own budgets, one core.

Compared with: plain PGD20, PGD100, MIM and CW on every image, each component of pyautoattack alone,
then its standard version. Ours is the real evaluation job, with records on disk and trust checks.
Flags are compared from the same starting points and seeds; the standard version draws its own
random numbers. Square and FAB, two thirds of our time, are pyautoattack's code on both sides: there
we only save BatchNorm, gradients of weights, and the second run of the standard version.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pyautoattack import AutoAttack
from torch import Tensor, nn

from benchmarks import plain
from benchmarks.setting import CPU
from benchmarks.timing import Row, faster, in_turn
from harness.attacks.attack import perturb
from harness.attacks.autoattack import listening
from harness.attacks.pgd import PGD, start_point
from harness.core.paths import seed_from
from harness.data import load
from harness.evaluation.evaluate import evaluate
from harness.evaluation.records import read_evaluation, value
from harness.grid.columns import PROTOCOLS, Columns, EvalRun, Probe
from harness.grid.plan import Plan
from harness.models.networks import load_model
from harness.training.batches import unit
from harness.training.train import train

IMAGES, ROUNDS = 250, 2
PGDS = ("PGD20", "PGD100", "MIM", "CW")
COMPONENTS = {
    "APGD_ce": "apgd-ce",
    "APGD_dlr": "apgd-dlr",
    "APGD_t": "apgd-t",
    "FAB_t": "fab-t",
    "Square": "square",
}
STANDARD = ("APGD_ce", "APGD_t", "FAB_t", "Square")


def measure() -> list[Row]:
    torch.set_num_threads(1)
    plan = Plan.read("smoke")
    test = {"examples": IMAGES, "batch_size": IMAGES}
    columns = Columns(plan.grid, {**plan.scale, "autoattack": {}, "test": test})
    wanted = plan.grid["artefacts"]["cvpr23_table1a"]["columns"]
    joined = columns.autoattack(wanted, PROTOCOLS[0])
    shown = [columns.resolved(name, "digits", PROTOCOLS[0], joined) for name in wanted]
    probes = {probe.id: probe for column in shown for probe in column.probes}
    run = plan.train_run("at", "cifar10", "resnet18", seed=0)
    images = load("digits", "test").take(slice(IMAGES))
    x, y = unit(torch.from_numpy(images.x)), torch.from_numpy(images.y)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder)
        train(run, results, CPU)
        model, same = load_model(results, run.id), load_model(results, run.id)
        flags: dict[str, dict[str, np.ndarray]] = {}

        def ours() -> None:
            shutil.rmtree(results / "records", ignore_errors=True)
            evaluation = EvalRun(run.id, tuple(probes.values()))
            evaluate(evaluation, model, "weights", results, CPU)
            records, _ = read_evaluation(results, evaluation)
            flags["ours"] = {column.name: value(column.formula, records) for column in shown}

        def theirs() -> None:
            flags["theirs"] = by_plain_ways(same, columns, x, y)

        signs = equal_signs(model, same, PGD.of(run.method.objective.threat), x, y)
        times = in_turn({"ours": ours, "theirs": theirs}, ROUNDS, warm_up=False)
    one, other = flags["ours"], flags["theirs"]
    differ = {name: int((one[name] != other[name]).sum()) for name in (*PGDS, *COMPONENTS)}
    components = np.logical_and.reduce([other[name] for name in STANDARD])
    left = [int(own.sum()) for own in (one["AA"], components, other["AA"])]
    what = f"the {len(wanted)} columns against one attack after the other"
    pgds, others = (sum(differ[name] for name in names) for names in (PGDS, COMPONENTS))
    return [
        faster(what, times.ratio("theirs", "ours"), 2.2),
        Row("flags of PGD20, PGD100, MIM, CW that differ", f"{pgds}", "0", pgds == 0),
        Row(
            "equal signs of x' - x after ten steps", f"{100 * signs:.3f} %", ">= 99.9 %", signs >= 0.999
        ),
        Row("flags of AutoAttack's components that differ, of the same seeds", f"{others}"),
        Row(
            f"images of {IMAGES} that AutoAttack leaves standing",
            f"{left[0]}; theirs {left[1]} by components, {left[2]} by the standard version",
            "never more than their components",
            left[0] <= left[1],
        ),
    ]


def equal_signs(model: nn.Module, same: nn.Module, pgd: PGD, x: Tensor, y: Tensor) -> float:
    """Share of pixels that our attack and the plain one move the same way, from the same start."""
    pgd = replace(pgd, steps=10)
    ours = perturb(pgd, model, x, y, generator=torch.Generator().manual_seed(0))
    start = start_point(pgd.start, pgd.ball, x, torch.Generator().manual_seed(0))
    theirs = plain.attack(same, pgd, x, y, start)
    return float(((ours - x).sign() == (theirs - x).sign()).float().mean())


def by_plain_ways(model: nn.Module, columns: Columns, x: Tensor, y: Tensor) -> dict[str, np.ndarray]:
    flags = {name: by_pgd(model, columns.probe(name, "digits"), x, y) for name in PGDS}
    eps = columns.pgd("digits", "linf", 1).ball.radius
    with listening():
        for column, name in COMPONENTS.items():
            draws = our_draws(columns.probe(column, "digits"))
            seed = int(torch.randint(2**31 - 1, (1,), generator=draws))
            flags[column] = by_autoattack(model, eps, seed, [name], x, y)
        flags["AA"] = by_autoattack(model, eps, 0, [], x, y)
    return flags


def our_draws(probe: Probe) -> torch.Generator:
    """The random numbers of a probe's first batch, as our evaluation draws them."""
    return torch.Generator().manual_seed(seed_from(probe.seed, probe.family, 0))


def by_pgd(model: nn.Module, probe: Probe, x: Tensor, y: Tensor) -> np.ndarray:
    """Which images survive, from the starting points that our evaluation draws for correct images."""
    pgd = probe.attack
    assert isinstance(pgd, PGD)
    right = model(x).argmax(dim=1) == y
    start = x.clone()
    start[right] = start_point(pgd.start, pgd.ball, x[right], our_draws(probe))
    attacked = plain.attack(model, pgd, x, y, start)
    return (right & (model(attacked).argmax(dim=1) == y)).numpy()


def by_autoattack(
    model: nn.Module, eps: float, seed: int, only: list[str], x: Tensor, y: Tensor
) -> np.ndarray:
    """Which images survive the named components, or the standard version."""
    attack = AutoAttack(model, norm="Linf", eps=eps, seed=seed, device=CPU)
    if only:
        attack.attacks_to_run = only
    with torch.random.fork_rng():
        found, _ = attack.run_standard_evaluation(x, y, batch_size=len(x))
    return (model(found).argmax(dim=1) == y).numpy()
