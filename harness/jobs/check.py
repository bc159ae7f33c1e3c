"""Does this machine's GPU do what is asked of it? `generalist-bench check`, in under ten minutes.

A line for each check, on the networks, methods and batch sizes of a scale:
- logits beside those of the CPU, in full float32, and how far TF32 and bfloat16 are from them;
- a training that is killed and continued, beside an undisturbed one: with `deterministic`, equal bits;
- the speed of passes, which `generalist-bench plan` and Snakemake take as `device_tflops`;
- two steps of every method: their time and the peak memory of the GPU.
No data set is needed: images are random, but for the training, which has scikit-learn's digits. One
check that fails stops no other; the command then ends with exit code 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from harness.core import paths
from harness.core.config import ROOT
from harness.core.errors import expected
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.grid.specs import write_spec
from harness.jobs import bill, meter
from harness.machine.device import autocast, compiled, pick_device, placed, set_up, tf32
from harness.machine.gpus import devices
from harness.models.networks import new_model
from harness.training.batches import seeded
from harness.training.contracts import Batch, Clock, Lab
from harness.training.runs import TrainRun, trained_norms

_SECONDS = 540.0  # for all checks: what comes later is left out, and said
_SPEED_SECONDS = 5.0  # for each network
_LARGEST_GAP = 1e-3  # between logits in full float32, as a share of the largest one
_ATTACK_STEPS = 10  # for each update, in what the speed is taken of
PRETEND = ROOT / "tests" / "device" / "run.py"


class Checks:
    """Carries checks out, prints a line for each, counts failures."""

    def __init__(self) -> None:
        self.began, self.done, self.failed, self.left_out = time.monotonic(), 0, 0, 0

    def __call__(self, name: str, check: Callable[[], str]) -> None:
        began = time.monotonic()
        if began - self.began > _SECONDS:
            self.left_out += 1
            return
        try:
            verdict, said = "PASS", check()
        except Exception as error:  # all others are still of use
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            verdict, said = "FAIL", reason
            self.failed += 1
        self.done += 1
        print(f"{verdict}  {name:<44} {time.monotonic() - began:5.1f} s  {said}", flush=True)

    def end(self) -> None:
        late = f", {self.left_out} left out for lack of time" if self.left_out else ""
        print(f"{self.done - self.failed} passed, {self.failed} failed{late}")
        sys.exit(bool(self.failed))


def logits(run: TrainRun, device: torch.device) -> str:
    """A new network on both devices."""
    entry = SETS[run.dataset]
    model = new_model(run.network, entry.channels, entry.classes, seed=0).eval()
    x = torch.rand(8, entry.channels, *entry.size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), tf32(False):
        right = model(x)
        model, x = placed(model, device), x.to(device)

        def gap() -> float:
            return float((model(x).float().cpu() - right).abs().max() / right.abs().max())

        full = gap()
        with tf32(True):
            short = gap()
        with autocast(device, enabled=True):
            shortest = gap()
    if not full < _LARGEST_GAP:
        what = "the CPU's logits in full float32"
        raise expected(what, f"a difference of {full:.1e}", "try another torch or driver")
    return f"{full:.0e} from the CPU's; in TF32 {short:.0e}, in bfloat16 {shortest:.0e}"


def killed_and_resumed(device: torch.device) -> str:
    """`kill -9` after an epoch, then the same command again."""
    runs = Plan.read("smoke").runs.values()
    run = next(run for run in runs if trained_norms(run.method) == ["linf"] and not run.parents)
    run = replace(run, recipe=replace(run.recipe, epochs=6, examples=512, deterministic=True))
    spec = write_spec(run)
    with tempfile.TemporaryDirectory() as folder:
        whole, halves = Path(folder) / "whole", Path(folder) / "halves"

        def started(results: Path) -> subprocess.Popen:
            words = ["train", "--spec", spec, "--results", str(results), "--device", str(device)]
            command = [sys.executable, "-m", "harness", *words]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def ended(results: Path) -> str:
            process = started(results)
            out, error = process.communicate()
            if process.returncode:
                raise expected("a training to end", (error or out).strip()[-300:], "see its words")
            return out

        ended(whole)
        process, checkpoint = started(halves), paths.checkpoint(halves, run.id)
        while process.poll() is None and not checkpoint.exists():
            time.sleep(0.01)
        process.kill()
        process.communicate()
        said = ended(halves)
        about = [json.loads(paths.description(at, run.id).read_text()) for at in (whole, halves)]
    if "continuing" not in said:
        raise expected("a training that continues", "one that began anew", "run the check again")
    if about[0]["sha256"] != about[1]["sha256"]:
        remedy = "do not count on equal bits after a stop on this device"
        raise expected("the weights of an undisturbed training", "others", remedy)
    return "equal bits, with `deterministic: true`"


def speed(run: TrainRun, device: torch.device) -> float:
    """The TFLOPS of a network in full float32, ten attack steps to an update."""
    with tf32(False):
        seconds = meter.seconds(run, device, _SPEED_SECONDS)
    price = (bill.known_networks().get(bill.kind(run)) or meter.network(run)).price
    parts = [(price.input_gradients, seconds.input_gradients)] * _ATTACK_STEPS
    parts.append((price.updates, seconds.updates))
    operations, times = (sum(part) for part in zip(*parts, strict=True))
    return operations / times / 1e12


def two_steps(run: TrainRun, device: torch.device) -> str:
    """Late in a run, when every method has left its warm-up, at the first and last step of an epoch."""
    entry, recipe = SETS[run.dataset], run.recipe
    size = recipe.augment.random_resized_crop or entry.size[0]
    x = torch.rand(recipe.batch_size, entry.channels, size, size, device=device)
    index = torch.arange(len(x), device=device)
    batch = Batch(x, index % entry.classes, index)

    def fresh() -> nn.Module:
        model = new_model(run.network, entry.channels, entry.classes, seed=0)
        model = placed(model, device, recipe.arithmetic.channels_last(device))
        return compiled(model, x) if recipe.compile else model

    lab = Lab(
        new_model=fresh,
        parents=tuple(fresh() for _ in run.parents),
        num_classes=entry.classes,
        generator=lambda role: seeded(device, run.seed, role),
        device=device,
        validation=batch,
        sample=batch,
        arithmetic=recipe.arithmetic,
    )
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    with recipe.arithmetic.applied(), autocast(device, recipe.arithmetic.amp):
        training = run.method.start(lab)
        for step in range(2):
            torch.cuda.synchronize()
            began = time.monotonic()
            training.step(batch, Clock(recipe.epochs - 1, step, recipe.epochs, 2))
            torch.cuda.synchronize()
            seconds = time.monotonic() - began
    peak = torch.cuda.max_memory_allocated(device) / 2**30
    return f"{1000 * seconds:.0f} ms a step of {len(x)} images, peak memory {peak:.2f} GiB"


def check(plan: Plan, device: torch.device) -> None:
    checks, speeds = Checks(), []
    priced = sorted(plan.runs.values(), key=lambda run: _operations(bill.kind(run)), reverse=True)

    def measured(run: TrainRun) -> str:
        speeds.append(speed(run, device))
        return f"{speeds[-1]:.3g} TFLOPS in full float32"

    for (name, image), run in {bill.kind(run): run for run in priced}.items():
        network = f"{name}, {'x'.join(map(str, image))}"
        checks(f"logits of {network}", partial(logits, run, device))
        checks(f"speed of {network}", partial(measured, run))
    checks("a training, killed and continued", partial(killed_and_resumed, device))
    methods = {(run.network, run.method.slug, run.processes): run for run in priced}  # the cheapest
    for (name, slug, processes), run in reversed(methods.items()):
        beside = f" in {processes} processes" if processes > 1 else ""
        checks(f"{slug}{beside}, {name}", partial(two_steps, run, device))
    if speeds:
        sustained = f"{min(speeds):.2g}"
        print(f"for the bill, by the slowest network: {sustained} TFLOPS, so")
        print(f"  generalist-bench plan --scale {plan.name} --device-tflops {sustained}")
        print(f"  snakemake ... --config scale={plan.name} device_tflops={sustained}")
    checks.end()


def _operations(kind: bill.Kind) -> float:
    known = bill.known_networks().get(kind)
    return known.price.updates if known else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Is this machine's GPU ready for a scale?")
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--pretend", action="store_true", help="rehearse the code on a pretend GPU")
    options = parser.parse_args()
    if options.pretend:
        sys.exit(subprocess.call([sys.executable, str(PRETEND)]))
    plan = Plan.read(options.scale, options.grid)
    if not torch.cuda.is_available() and not devices(os.environ):
        remedy = "start it where the GPU is, or add --pretend to rehearse the code on a pretend one"
        raise expected("a GPU on this machine", "none", remedy)
    set_up(plan.scale["threads"])
    device = pick_device("cuda")
    free, total = torch.cuda.mem_get_info()
    gigabytes = f"{total / 2**30:.0f} GiB, {free / 2**30:.0f} free"
    print(f"{torch.cuda.get_device_name(device)}, {gigabytes}; torch {torch.__version__}", flush=True)
    check(plan, device)
