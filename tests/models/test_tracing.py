"""Networks that are not ours: folded where that changes nothing, elsewhere attacked as they are."""

import copy
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import LINF, generator
from torch import nn

from harness.attacks.attack import attack_view, perturb
from harness.attacks.autoattack import Cascade
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.evaluation.evaluate import evaluate
from harness.evaluation.probing import evaluate_batch
from harness.evaluation.records import read_evaluation
from harness.grid.columns import EvalRun, Probe
from harness.models.folding import folded, use
from harness.models.networks import new_model
from harness.models.tracing import fold_unknown


class Theirs(nn.Module):
    """conv-BN-ReLU with and without a bias, a pre-activation, a shared ReLU, a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.bn3, self.relu, self.last = nn.BatchNorm2d(8), nn.ReLU(), nn.ReLU()
        self.linear = nn.Linear(8, 10)

    def forward(self, x, features=False):
        x = self.relu(self.bn1(self.conv1(x)))
        x = x + self.relu(self.bn2(self.conv2(x)))
        x = self.last(self.bn3(x)).mean((2, 3))
        return x if features else self.linear(x)


class Branching(Theirs):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


class Twice(Theirs):
    """The convolution's output is used beside the BatchNorm too."""

    def forward(self, x):
        made = self.conv1(x)
        return self.linear((self.bn1(made) + made).relu().mean((2, 3)))


class Flat(Theirs):
    """`view` needs the usual layout."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8 * 64, 10)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        return self.linear(x.view(x.size(0), -1))


class Odd(Theirs):
    """Reads the statistics of a BatchNorm itself."""

    def forward(self, x):
        return super().forward(x) + self.bn1.running_mean.sum()


class Random(Theirs):
    def forward(self, x):
        return super().forward(x + 0.1 * torch.randn_like(x))


class Tied(Theirs):
    def __init__(self):
        super().__init__()
        self.conv3, self.bn4 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv3.weight = self.conv2.weight

    def forward(self, x):
        x = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        return self.linear(self.bn4(self.conv3(x)).mean((2, 3)))


def moved(model, batch):
    """In eval mode, with statistics and affine maps that are not those of the beginning."""
    torch.manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 2.0)
            nn.init.normal_(layer.bias)
    model.train()(batch.x)
    return model.eval()


def hooked():
    model = Theirs()
    model.conv1.register_forward_hook(lambda layer, inputs, output: 2 * output)
    return model


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Theirs, "folded: 2 of 3 BatchNorms into a convolution, in channels_last"),
        (Twice, "folded: 0 of 3 BatchNorms into a convolution, in channels_last"),
        (Flat, "folded: 1 of 3 BatchNorms into a convolution"),
        (Tied, "folded: 1 of 4 BatchNorms into a convolution, in channels_last"),
        (hooked, "folded: 1 of 3 BatchNorms into a convolution, in channels_last"),
        (Odd, "attacked as it is: AttributeError: 'Identity' object has no attribute 'running_mean'"),
        (Random, "attacked as it is: its logits or gradients are others when it is folded"),
        (Branching, "attacked as it is: torch.fx cannot trace it (TraceError: symbolically traced"),
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "attacked as it is: it has no Batch"),
    ],
)
def test_what_is_said_is_what_was_done(make, said, batch):
    model = moved(make(), batch)
    found = fold_unknown(model, batch.x)
    assert found.startswith(said)
    assert found == said or said.startswith("attacked")
    copied = folded(model)
    assert (copied is not None) == said.startswith("folded")
    with attack_view(model) as seen:
        assert seen is (copied or model)
        if make is not Random:
            torch.testing.assert_close(seen(batch.x), model(batch.x), rtol=1e-4, atol=1e-4)


def test_a_network_of_ours_folds_itself(batch):
    assert fold_unknown(new_model("tiny", 1, 10, 0), batch.x) is None


def test_verdicts_and_pass_counts_stay_the_same(batch):
    model = moved(Theirs(), batch)
    with torch.no_grad():  # as many classes are predicted as there are
        model.linear.bias -= model(batch.x).mean(0)
    y = model(batch.x).argmax(1)
    cascade = Cascade.standard(Ball("linf", Fraction(4, 255)), steps=5, queries=20)
    probe = Probe("digits", len(batch.x), cascade, len(batch.x))

    def run():
        return evaluate_batch(model, probe, batch.x, y, generator())

    one = run()
    fold_unknown(model, batch.x)
    assert folded(model) is not None
    other = run()
    assert {-1, 0} <= set(one.broken_by.tolist())
    assert np.array_equal(one.broken_by, other.broken_by)
    assert (one.forward, one.backward) == (other.forward, other.backward)


def test_the_copy_follows_the_weights_and_is_forgotten(batch):
    model = moved(Theirs(), batch)
    fold_unknown(model, batch.x)
    before = folded(model)(batch.x).clone()
    with torch.no_grad():
        model.conv1.bias += 1
        model.bn3.bias -= 1
    assert (folded(model)(batch.x) - before).abs().max() > 1e-2
    torch.testing.assert_close(folded(model)(batch.x), model(batch.x), rtol=1e-4, atol=1e-4)
    use(model, None)
    assert folded(model) is None


def test_training_looks_for_nothing(batch):
    """Only an evaluation does: a training's ids and weights stay what they were."""
    model = moved(Theirs(), batch)
    perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator())
    assert folded(model) is None


def test_an_evaluation_folds_and_says_so(tmp_path, batch):
    probe = Probe("digits", 20, PGD(Ball("linf", Fraction(1, 10)), Fraction(1, 40), 3), 20)
    for make, said in ((Theirs, "folded: 2 of 3"), (Branching, "attacked as it is")):
        evaluation = EvalRun(f"digits-{make.__name__}-x-s0-0123456789", (probe,))
        model = moved(copy.deepcopy(make()), batch)
        evaluate(evaluation, model, "weights", tmp_path, torch.device("cpu"))
        _, about = read_evaluation(tmp_path, evaluation)
        assert about["folding"].startswith(said)
        assert (folded(model) is not None) == said.startswith("folded")
