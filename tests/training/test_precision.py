"""What is meant for GPUs, on a CPU: steps in bfloat16, and networks through torch.compile."""

import dataclasses
import shutil
from fractions import Fraction

import pandas as pd
import pytest
import torch
from conftest import run_of, weights

from harness.core import paths
from harness.core.config import read_grid, read_scale
from harness.core.errors import UserError
from harness.evaluation.probing import evaluate_family, inspect
from harness.grid.plan import Plan
from harness.machine.device import Arithmetic, compiled
from harness.models.folding import folded
from harness.models.networks import ResNet, load_model
from harness.training import train as training
from harness.training.runs import Watch
from harness.training.train import train

CPU = torch.device("cpu")
needs_a_compiler = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None,
    reason="torch.compile needs a C++ compiler on a CPU",
)


def trained(run, results):
    train(run, results, CPU)
    return load_model(results, run.id), pd.read_csv(paths.history(results, run.id))


def changed(run, **recipe):
    return dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, **recipe))


def test_a_scale_may_ask_for_either():
    scale = read_scale("ci")
    scale["recipe"] |= {"amp": "bf16", "compile": True}
    recipe = next(iter(Plan(read_grid(), scale, "ci").runs.values())).recipe
    assert (recipe.amp, recipe.compile) == ("bf16", True)
    assert recipe.arithmetic == Arithmetic(amp=True, tf32=None, deterministic=False)


def test_an_unknown_precision_is_refused(plan):
    with pytest.raises(UserError, match=r"expected a known precision .* found 'bf17'"):
        changed(run_of(plan, "at"), amp="bf17")


def test_bfloat16_learns_the_same_in_other_bits(plan, tmp_path):
    run = run_of(plan, "at")
    plain, half = (trained(r, tmp_path) for r in (run, changed(run, amp="bf16")))
    assert not torch.equal(weights(plain[0]), weights(half[0]))
    assert weights(half[0]).dtype == torch.float32
    assert half[1].loss.iloc[-1] < half[1].loss.iloc[0]
    assert half[1].loss.to_numpy() == pytest.approx(plain[1].loss.to_numpy(), rel=0.05)


def test_verdicts_are_reached_in_full_float32(plan, tmp_path, monkeypatch):
    """In selection, watching and evaluation; steps are as the recipe says."""
    seen: dict[bool, set] = {True: set(), False: set()}  # inside steps, and outside
    inside = {"step": False}

    def note(module, inputs):
        if isinstance(module, ResNet):
            places = (torch.backends.cudnn, torch.backends.cuda.matmul)
            seen[inside["step"]].add(tuple(place.allow_tf32 for place in places))

    step = training.take_step

    def marked(*about):
        inside["step"] = True
        try:
            return step(*about)
        finally:
            inside["step"] = False

    monkeypatch.setattr(training, "take_step", marked)
    attack = plan.columns.pgd("digits", "linf", 2)
    watch = Watch(attack, examples=10, moments=(Fraction(1),))
    run = run_of(plan, "generalist_d_nt_linf@validated", watch=watch)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        model, _ = trained(changed(run, tf32=True), tmp_path)
        x, y = torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)
        probes = [probe for own in plan.evaluations.values() for probe in own.probes if probe.attack]
        evaluate_family(model, probes[:1], x, y, torch.Generator())
        inspect(model, x, y, {"linf": attack.ball})
    finally:
        hook.remove()
    assert seen == {True: {(True, True)}, False: {(False, False)}}


def test_bfloat16_reaches_learners_in_processes_of_their_own(plan, tmp_path):
    run = changed(run_of(plan, "generalist_d_linf_l2"), amp="bf16")
    beside = dataclasses.replace(run, method=dataclasses.replace(run.method, parallel=True))
    serial, parallel = (trained(r, tmp_path)[0] for r in (run, beside))
    assert torch.equal(weights(serial), weights(parallel))


@needs_a_compiler
def test_a_compiled_network_and_its_folded_copy_compute_the_same(model, batch):
    with torch.no_grad():
        plain = model.eval()(batch.x)
        assert compiled(model, batch.x) is model
        assert not model.training
        copied = folded(model)
        assert copied is not None
        assert copied._compiled_call_impl is not None
        for network in (model, copied):
            torch.testing.assert_close(network(batch.x), plain, rtol=1e-4, atol=1e-5)


class Two(torch.nn.Module):
    """A network that torch.compile gets wrong."""

    def forward(self, x):
        return x.flatten(1) + (1 if torch.compiler.is_compiling() else 0)


@needs_a_compiler
def test_compiled_networks_that_compute_something_else_are_refused(batch):
    with pytest.raises(UserError, match="expected the plain network's logits"):
        compiled(Two(), batch.x)
