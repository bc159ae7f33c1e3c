"""The folded copy that attacks use is the network itself, up to rounding."""

import copy
import gc

import pytest
import torch
from conftest import LINF, generator, weights

from harness.attacks.attack import counting, input_gradient, perturb
from harness.attacks.losses import attack_cross_entropy, cross_entropy
from harness.attacks.pgd import PGD
from harness.data import load
from harness.models.folding import Affine, _copies, folded, frozen
from harness.models.networks import ResNet, WideResNet, new_model
from harness.training.batches import unit


def step(model, x, y, optimizer=None) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    model.train()
    optimizer.zero_grad()
    cross_entropy(model(x), y).mean().backward()
    optimizer.step()


@pytest.fixture(scope="module", params=["tiny", "tiny_wide", "wide"])
def trained(request):
    """A network whose BatchNorms have moved away from where they begin."""
    torch.manual_seed(0)
    images = load("digits", "train").take(slice(256))
    x, y = unit(torch.from_numpy(images.x)), torch.from_numpy(images.y)
    wide = request.param == "wide"
    model = WideResNet(1, 1, 1, 10) if wide else new_model(request.param, 1, 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(30):
        step(model, x, y, optimizer)
    return model.eval()


def gradients(model, batch):
    """Of the network itself and of its folded copy."""
    x = batch.x.to(next(model.parameters()).dtype)
    attack_loss = attack_cross_entropy(model, x, batch.y)
    with frozen(model):
        own = input_gradient(model, x, attack_loss)
    return own, input_gradient(folded(model), x, attack_loss)


def test_in_double_precision_the_gradients_are_equal(trained, batch):
    own, copied = gradients(copy.deepcopy(trained).double(), batch)
    assert copied.is_contiguous()
    torch.testing.assert_close(copied, own, rtol=1e-9, atol=1e-12)


def test_in_single_precision_the_signs_are_equal(trained, batch):
    own, copied = gradients(trained, batch)
    assert (own.sign() == copied.sign()).float().mean() >= 0.999


def test_verdicts_under_attack_agree(trained, batch):
    attacked = perturb(PGD.of(LINF), trained, batch.x, batch.y, generator=generator())
    copied = folded(trained)
    assert (trained(attacked) - copied(attacked)).abs().max() < 1e-4
    assert torch.equal(trained(attacked).argmax(1), copied(attacked).argmax(1))


def test_no_batchnorm_is_left(trained):
    layers = list(folded(trained).modules())
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in layers)
    assert any(isinstance(layer, Affine) for layer in layers) == isinstance(trained, WideResNet)


def test_the_folded_copy_follows_the_weights(trained, batch):
    model = copy.deepcopy(trained)
    copied, before = folded(model), folded(model)(batch.x)
    step(model, batch.x, batch.y)
    assert folded(model) is copied  # refreshed, not built again
    assert (copied(batch.x) - before).abs().max() > 1e-3
    torch.testing.assert_close(copied(batch.x), model.eval()(batch.x), rtol=1e-4, atol=1e-4)
    model.double()
    assert folded(model)(batch.x.double()).dtype == torch.float64
    model.linear = torch.nn.Linear(model.linear.in_features, 3).double()
    assert folded(model)(batch.x.double()).shape == (len(batch.y), 3)


def test_the_network_is_left_as_it_was(trained, batch):
    model = copy.deepcopy(trained).train()
    before, names = weights(model).clone(), list(model.state_dict())
    folded(model)(batch.x)
    assert model.training
    assert torch.equal(weights(model), before)
    assert list(model.state_dict()) == names
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_passes_through_the_folded_copy_are_counted(trained, batch):
    with counting(trained) as passes:
        perturb(PGD.of(LINF), trained, batch.x, batch.y, generator=generator())
    assert (passes.forward, passes.backward) == (LINF.steps, LINF.steps)
    with torch.no_grad():
        folded(trained)(batch.x)
    assert passes.forward == LINF.steps  # the hook is gone


def test_a_network_of_unknown_build_is_attacked_as_it_is(batch):
    class Noisy(ResNet):
        """Inherits the layers, but who knows what it does with them."""

    for model in (Noisy((4,), 1, 1, 10), torch.nn.Sequential(new_model("tiny", 1, 10, 0))):
        assert folded(model) is None
        found = perturb(PGD.of(LINF), model.eval(), batch.x, batch.y, generator=generator())
        assert (found != batch.x).any()
    biased = new_model("tiny", 1, 10, 0)
    biased.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
    assert folded(biased) is None


def test_crafting_in_train_mode_sees_batch_statistics(trained, batch):
    model = copy.deepcopy(trained)
    one = perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator())
    other = perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator(), mode="train")
    assert not torch.equal(one, other)


def test_a_forgotten_network_takes_its_folded_copy_along():
    model = new_model("tiny", 1, 10, 0)
    folded(model)
    count = len(_copies)
    del model
    gc.collect()
    assert len(_copies) == count - 1
