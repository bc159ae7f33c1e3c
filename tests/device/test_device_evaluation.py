"""Every attack, map and check of an evaluation on the device."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from conftest import command, run_of, said
from rehearsal import CUDA, trained
from torch import nn

from harness.attacks.attack import perturb
from harness.attacks.autoattack import COMPONENTS, Component
from harness.attacks.balls import Ball
from harness.core.paths import read_description
from harness.evaluation.evaluate import evaluate, evaluate_part
from harness.evaluation.probing import evaluate_family
from harness.evaluation.records import Part, read_evaluation
from harness.machine.device import placed
from harness.models.folding import folded
from harness.models.networks import WideResNet, load_model, new_model


@pytest.fixture(scope="module")
def results(plan, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    trained(plan, run_of(plan, "at"), folder)
    return folder


@pytest.fixture
def tiny():
    return placed(new_model("tiny", 1, 10, 0), CUDA).eval()


@pytest.fixture
def right(tiny):
    """Images that the network classifies as their labels say."""
    x = torch.rand(12, 1, 8, 8, device=CUDA)
    with torch.no_grad():
        return x, tiny(x).argmax(dim=1)


def test_every_probe_in_parts_and_joined(plan, results):
    run = run_of(plan, "at")
    evaluation = plan.evaluations[run.id]
    weights = read_description(results, run.id)["sha256"]
    model = placed(load_model(results, run.id), CUDA)
    evaluate_part(evaluation, model, weights, results, CUDA, Part.read("1/2"))
    evaluate(evaluation, model, weights, results, CUDA)
    records, about = read_evaluation(results, evaluation)
    assert records.keys() == {probe.id for probe in evaluation.probes}
    assert {check["name"] for check in about["checks"]} >= {"deterministic logits", "usable gradients"}


def test_grad_cam_maps(plan, tiny, right):
    probes = [probe for own in plan.evaluations.values() for probe in own.probes]
    hot = replace(next(probe for probe in probes if probe.attack), heat=True)
    (record,) = evaluate_family(tiny, [hot], *right, torch.Generator(CUDA).manual_seed(0))
    assert record.heat.shape == (12, 4, 4)


@pytest.mark.parametrize(
    "ball", [Ball("linf", Fraction(8, 255)), Ball("l2", Fraction(1, 2)), Ball("l1", Fraction(3))]
)
def test_autoattack_leaves_the_global_generators_alone(ball, tiny, right):
    torch.manual_seed(5)
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    for name in COMPONENTS:
        attack = Component(ball, name, steps=3, targets=2, queries=5)
        perturb(attack, tiny, *right, generator=torch.Generator(CUDA).manual_seed(0))
    after = torch.get_rng_state(), torch.cuda.get_rng_state()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "network", [lambda: new_model("tiny", 3, 10, 0), lambda: WideResNet(1, 1, 3, 10)]
)
def test_the_folded_copy_computes_the_same_in_the_same_layout(network, channels_last):
    model = placed(network(), CUDA, channels_last)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    copy, x = folded(model), torch.rand(4, 3, 16, 16, device=CUDA)
    with torch.no_grad():
        torch.testing.assert_close(copy(x), model.eval()(x), rtol=1e-4, atol=1e-4)
    kernels = [m.weight for m in copy.modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] > 1]
    assert all(kernel.is_cuda for kernel in kernels)
    assert any(not kernel.is_contiguous() for kernel in kernels) == channels_last


def test_somebody_elses_model(tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\ndef build():\n    torch.manual_seed(0)\n"
        "    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)\n"
        "    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 10))\n"
    )
    words = "--model net.py:build --data digits --attacks all --examples 40 --scale ci --device cuda"
    done = command("harness", "evaluate", *words.split(), cwd=tmp_path)
    assert done.returncode == 0, said(done)
    assert (tmp_path / "results" / "external").exists()
