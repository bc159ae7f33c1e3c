import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch
from conftest import L2, LINF, generator, weights

from harness.attacks import ATTACKS
from harness.attacks.apgd import APGD, searched
from harness.attacks.attack import Staged, counting, input_gradient, perturb
from harness.attacks.autoattack import Cascade
from harness.attacks.balls import Ball
from harness.attacks.losses import ATTACK_LOSSES, cross_entropy, dlr, kl, margin
from harness.attacks.pgd import PGD, fgsm, start_point
from harness.core.errors import UserError
from harness.grid.build import build_attack
from harness.grid.columns import Columns
from harness.models.folding import frozen

SETTINGS = [
    PGD.of(threat, start, loss)
    for threat in (LINF, L2)
    for start in ("uniform", "normal", "zero")
    for loss in ("ce", "kl")
]


class Linear(torch.nn.Module):
    """Two classes whose logit difference is linear: the worst case has a closed form."""

    def __init__(self, direction: torch.Tensor) -> None:
        super().__init__()
        self.direction = direction

    def forward(self, x):
        score = (x.flatten(1) * self.direction).sum(dim=1)
        return torch.stack([score, -score], dim=1)


@pytest.mark.parametrize(("threat", "dual"), [(LINF, 1), (L2, 2)])
def test_pgd_reaches_eps_times_the_dual_norm_on_a_linear_model(threat, dual):
    direction = torch.randn(16, generator=generator())
    model, x = Linear(direction), torch.full((4, 1, 4, 4), 0.5)
    y = torch.zeros(4, dtype=torch.long)
    attack = PGD(threat.ball, threat.step, 40)
    adversarial = perturb(attack, model, x, y, generator=generator())
    fall = (model(x) - model(adversarial))[:, 0]
    worst = threat.ball.radius * direction.norm(p=dual)
    torch.testing.assert_close(fall, worst.expand(4), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("attack", SETTINGS, ids=lambda a: f"{a.slug}-{a.start}-{a.loss}")
def test_an_attack_leaves_the_model_as_it_was(attack, model, batch):
    model.train()
    model.linear.weight.requires_grad_(False)
    before = weights(model).clone()
    adversarial = perturb(attack, model, batch.x, batch.y, generator=generator())
    assert adversarial.shape == batch.x.shape
    assert model.training
    assert model.bn1.training
    assert torch.equal(weights(model), before)
    assert all(p.grad is None for p in model.parameters())
    assert not model.linear.weight.requires_grad
    assert model.conv1.weight.requires_grad
    assert not adversarial.requires_grad


def test_crafting_in_train_mode_gives_the_buffers_back(model, batch):
    before = weights(model).clone()
    perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator(), mode="train")
    assert torch.equal(weights(model), before)
    assert int(model.bn1.num_batches_tracked) == 0


def test_an_attack_raises_the_loss_and_depends_on_the_seed_alone(model, batch):
    model.eval()
    attack = PGD.of(LINF)
    one = perturb(attack, model, batch.x, batch.y, generator=generator(1))
    same = perturb(attack, model, batch.x, batch.y, generator=generator(1))
    other = perturb(attack, model, batch.x, batch.y, generator=generator(2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    with torch.no_grad():
        rise = cross_entropy(model(one), batch.y) - cross_entropy(model(batch.x), batch.y)
    assert rise.mean() > 0


def test_an_attack_that_leaves_its_ball_is_caught(model, batch):
    class Cheat(PGD):
        def __call__(self, model, x, y, *, generator):
            return (x + 0.5).clamp(0, 1)

    with pytest.raises(AssertionError, match="left its budget"):
        perturb(Cheat.of(LINF), model, batch.x, batch.y, generator=generator())


def test_passes_are_counted(model, batch):
    with counting(model) as passes:
        perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator())
    assert (passes.forward, passes.backward) == (LINF.steps, LINF.steps)
    assert passes.backward_examples == LINF.steps * len(batch.y)


def test_an_empty_batch_is_no_problem(model, batch):
    nothing = perturb(PGD.of(LINF), model, batch.x[:0], batch.y[:0], generator=generator())
    assert nothing.shape == batch.x[:0].shape


def test_kl_is_the_textbook_sum_and_zero_between_equals():
    one, other = torch.randn(5, 7, generator=generator()), torch.randn(5, 7, generator=generator(1))
    p, q = one.softmax(1), other.softmax(1)
    torch.testing.assert_close(kl(one, other), (p * (p / q).log()).sum(1))
    torch.testing.assert_close(kl(one, one), torch.zeros(5))


def test_the_kl_gradient_vanishes_at_the_image_itself(model, batch):
    with frozen(model):
        attack_loss = ATTACK_LOSSES["kl"](model, batch.x, batch.y)
        assert input_gradient(model, batch.x, attack_loss).abs().max() < 1e-6


def test_unknown_parts_are_named():
    with pytest.raises(UserError, match="start"):
        PGD.of(LINF, start="unifrom")
    with pytest.raises(UserError, match="attack loss"):
        PGD.of(LINF, loss="xe")


def numpy_steps(model, attack, x, y, start):
    """MIM and CW as their papers write them, one image at a time, gradients by autograd only."""
    eps, step = attack.ball.radius, float(attack.step)
    finished = []
    for number in range(len(x)):
        image, label = x[number : number + 1], int(y[number])
        now, velocity = start[number : number + 1].clone(), np.zeros(image.shape)
        for _ in range(attack.steps):
            now.requires_grad_(True)
            logits = model(now)[0]
            if attack.loss == "margin":
                others = max(logits[k] for k in range(10) if k != label)
                height = -torch.clamp(logits[label] - others + 50, min=0)
            else:
                height = torch.logsumexp(logits, 0) - logits[label]
            gradient = torch.autograd.grad(height, now)[0].numpy()
            if attack.momentum is not None:
                velocity = attack.momentum * velocity + gradient / np.abs(gradient).mean()
                gradient = velocity
            moved = now.detach().numpy() + step * np.sign(gradient)
            original = image.numpy()
            moved = np.clip(np.clip(moved, original - eps, original + eps), 0, 1)
            now = torch.from_numpy(moved.astype(np.float32))
        finished.append(now)
    return torch.cat(finished)


@pytest.mark.parametrize(
    "changes", [{"momentum": 1.0}, {"loss": "margin"}, {}], ids=["mim", "cw", "pgd"]
)
def test_against_step_by_step_numpy(changes, model, batch):
    attack = dataclasses.replace(PGD.of(LINF), **changes)
    x, y = batch.x[:6], batch.y[:6]
    found = perturb(attack, model, x, y, generator=generator())
    start = start_point("uniform", attack.ball, x, generator())
    expected = numpy_steps(model.eval(), attack, x, y, start)
    assert (found - expected).abs().max() < 1e-5


def test_fgsm_is_one_full_step(model, batch):
    model.eval()
    found = perturb(fgsm(LINF.ball), model, batch.x, batch.y, generator=generator())
    x = batch.x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(cross_entropy(model(x), batch.y).sum(), x)
    expected = (batch.x + LINF.ball.radius * gradient.sign()).clamp(0, 1)
    torch.testing.assert_close(found, expected)


def test_margin_and_dlr_by_hand():
    logits = torch.tensor([[3.0, 1.0, 0.5, -1.0], [0.0, 2.0, 5.0, 1.0]])
    y = torch.tensor([0, 1])
    assert margin(logits, y).tolist() == [-2.0, 3.0]
    assert dlr(logits, y).tolist() == pytest.approx([-2 / 2.5, 3 / 4])
    two = dlr(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert torch.isfinite(two).all()


def test_names_say_what_an_attack_is():
    pgd = PGD.of(LINF)
    assert pgd.slug == "pgd3_linf"
    assert dataclasses.replace(pgd, momentum=1.0).slug == "mim3_linf"
    assert dataclasses.replace(pgd, loss="margin").slug == "cw3_linf"
    assert fgsm(L2.ball).slug == "fgsm_l2"


@pytest.mark.parametrize("steps", [1, 10])
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_apgd_never_ends_below_its_start_and_takes_an_empty_batch(norm, steps, model, batch):
    attack = APGD(
        Ball(norm, {"linf": LINF.ball.eps, "l2": L2.ball.eps, "l1": Fraction(2)}[norm]), steps
    )
    model.eval()
    found = searched(attack, model, batch.x, batch.y)
    assert (found.loss >= cross_entropy(model(batch.x), batch.y) - 1e-4).all()
    assert searched(attack, model, batch.x[:0], batch.y[:0]).best.shape == batch.x[:0].shape


def built(kind: str, **fields) -> Staged:
    autoattack = {"steps": 3, "targets": 2, "queries": 10}
    offered = {"ball": LINF.ball, "step": LINF.step, "autoattack": autoattack}
    return build_attack(ATTACKS[kind], offered, fields, "a column")


def test_every_registered_attack_is_built_and_states_its_work():
    steps = {"pgd": {"steps": 5}, "mim": {"steps": 5}, "cw": {"steps": 5}}
    for kind in ATTACKS:
        attack = built(kind, **steps.get(kind, {}))
        assert attack.stages
        assert attack.work(classes=10).all_forward > 0
    assert built("mim", steps=5) == PGD(LINF.ball, LINF.step, 5, momentum=1.0)
    assert built("aa") == Cascade.standard(LINF.ball, steps=3, targets=2, queries=10)


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("pgd", {}, "expected a value for steps in a column, found none"),
        ("pgd", {"steps": 5, "sart": "zero"}, "did you mean 'start'"),
        ("pgd", {"steps": 5, "start": "zreo"}, "did you mean 'zero'"),
        ("aa", {"steps": 5}, "known field in a column, found 'steps'"),
    ],
)
def test_a_bad_field_of_a_column_is_one_sentence(kind, fields, message):
    with pytest.raises(UserError, match=message):
        built(kind, **fields)


def test_an_unknown_attack_is_one_sentence(plan):
    grid = {**plan.grid, "columns": {**plan.grid["columns"], "PGD20": {"attack": "pdg"}}}
    with pytest.raises(UserError, match=r"known attack in .*columns, found 'pdg'; did you mean 'pgd'"):
        Columns(grid, plan.scale).probe("PGD20", "digits")
