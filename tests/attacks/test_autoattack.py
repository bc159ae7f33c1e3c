"""The adapter against `pyautoattack` itself, and its traps."""

import sys

import pytest
import torch
from conftest import L2, LINF, generator
from pyautoattack import AutoAttack

from harness.attacks.attack import perturb
from harness.attacks.autoattack import COMPONENTS, STANDARD, Cascade, Component
from harness.core.errors import UserError
from harness.evaluation.probing import listening
from harness.models.folding import folded
from harness.models.networks import new_model

SHORT = {"steps": 8, "queries": 30}


@pytest.fixture(scope="module")
def taught():
    """A network that knows digits a little: most images right, none of them robust."""
    from harness.data import load
    from harness.training.batches import unit

    images = load("digits", "train").take(slice(400))
    x, y = unit(torch.from_numpy(images.x)), torch.from_numpy(images.y)
    model = new_model("tiny", 1, 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(40):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval(), x[:40], y[:40]


@pytest.mark.parametrize("threat", [LINF, L2], ids=lambda t: t.norm)
@pytest.mark.parametrize("name", STANDARD)
def test_identical_to_a_direct_call_with_the_same_seed(name, threat, taught):
    """Bitwise on the folded copy that attacks see; the same verdicts on the network itself."""
    model, x, y = taught
    component = Component(threat.ball, name)  # AutoAttack's own budgets
    x, y = x[:12], y[:12]
    if name in ("fab-t", "square"):
        component = Component(threat.ball, name, steps=100, queries=300)
    found = perturb(component, model, x, y, generator=generator(3))
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator(3)))
    expected = {}
    for seen in (folded(model), model):
        direct = AutoAttack(
            seen, norm={"linf": "Linf", "l2": "L2"}[threat.norm], eps=threat.ball.radius, seed=seed
        )
        direct.attacks_to_run = [name]
        direct.square.n_queries = component.queries
        with torch.random.fork_rng():
            expected[seen], _ = direct.run_standard_evaluation(x, y, batch_size=len(x))
    assert torch.equal(found, expected[folded(model)])
    assert torch.equal(model(found).argmax(1) == y, model(expected[model]).argmax(1) == y)


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("classes", [2, 3, 4, 10, 100])
def test_any_number_of_classes(name, classes):
    model = new_model("tiny", 1, classes, seed=0).eval()
    x = torch.rand(6, 1, 8, 8, generator=generator())
    y = model(x).argmax(dim=1)
    with listening() as heard:
        found = perturb(Component(LINF.ball, name, **SHORT), model, x, y, generator=generator())
    assert found.shape == x.shape
    few = {"apgd-t": 4, "apgd-dlr": 3}.get(name, 2) > classes
    assert any("is used instead" in warning for warning in heard) == few


def test_a_batch_of_one_and_of_none(taught):
    model, x, y = taught
    for count in (0, 1):
        for component in Cascade.standard(LINF.ball, **SHORT).stages:
            found = perturb(component, model, x[:count], y[:count], generator=generator())
            assert found.shape == x[:count].shape


def test_the_global_random_state_and_tracing_are_left_alone(taught):
    model, x, y = taught
    torch.manual_seed(7)
    before = torch.random.get_rng_state()

    def tracer(frame, event, argument):
        return None

    sys.settrace(tracer)
    try:
        perturb(Component(LINF.ball, "apgd-ce", **SHORT), model, x, y, generator=generator())
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_channels_last_inputs_are_no_problem(taught):
    model, x, y = taught
    component = Component(LINF.ball, "apgd-ce", **SHORT)
    plain = perturb(component, model, x, y, generator=generator())
    odd = x.contiguous(memory_format=torch.channels_last)
    assert torch.equal(perturb(component, model, odd, y, generator=generator()), plain)


def test_warnings_are_kept():
    class Softmax(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = new_model("tiny", 1, 10, seed=0).eval()

        def forward(self, x):
            return self.inner(x).softmax(dim=1)

    x = torch.rand(4, 1, 8, 8, generator=generator())
    y = Softmax()(x).argmax(dim=1)
    with listening() as heard:
        perturb(Component(LINF.ball, "apgd-ce", **SHORT), Softmax(), x, y, generator=generator())
    assert any("probability distribution" in warning for warning in heard)


def test_an_unknown_component():
    with pytest.raises(UserError, match="did you mean 'apgd-ce'"):
        Component(LINF.ball, "apgd_ce")
