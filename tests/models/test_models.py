import pytest
import torch
from conftest import ROOT, weights

from harness.core.config import read_grid
from harness.core.errors import UserError
from harness.models import NETWORKS
from harness.models.networks import FAMILIES, new_model


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("resnet18", 10, 11_173_962),
        ("wrn32_10", 10, 46_160_474),
        ("resnet50", 1000, 25_557_032),
        ("wrn50_2", 1000, 68_883_240),
    ],
)
def test_the_papers_networks_have_the_papers_sizes(name, classes, parameters):
    model = new_model(name, channels=3, num_classes=classes, seed=0)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("name", ["resnet18", "tiny", "tiny_wide", "small"])
def test_channels_classes_and_size_are_free(name):
    model = new_model(name, channels=1, num_classes=7, seed=0).eval()
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 7)
    assert model(torch.rand(2, 1, 8, 16)).shape == (2, 7)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    one = new_model("tiny", 1, 10, seed=3)
    torch.manual_seed(6)
    assert torch.equal(weights(one), weights(new_model("tiny", 1, 10, seed=3)))
    assert not torch.equal(weights(one), weights(new_model("tiny", 1, 10, seed=4)))


def test_the_grid_names_only_networks_that_exist():
    assert set(read_grid(ROOT / "config" / "grid.yaml")["networks"]) <= set(NETWORKS)
    assert {family for family, _ in NETWORKS.values()} == set(FAMILIES)
    with pytest.raises(UserError, match="did you mean 'resnet18'"):
        new_model("resnet1", 3, 10, 0)
    with pytest.raises(UserError, match="3 channels"):
        new_model("resnet50", 1, 10, 0)
