"""The cards' invariants: each baseline against a simpler one, and against its own formula."""

import dataclasses
from fractions import Fraction

import pytest
import torch
from conftest import L2, LINF, clocks, generator, weights
from test_reductions import assert_same, gradient_of

from baselines.agr import AGR, clipped, reconstructed
from baselines.at import AT
from baselines.at_half import HalfHalf
from baselines.at_multi import MultiAT
from baselines.eat import EAT, NormAT
from baselines.fast_at import FastAT
from baselines.fat import FAT, FriendlyPGD
from baselines.iat import IAT, draw_beta, mixed_loss, shuffle
from baselines.imagenet_at import ImageNetAT
from baselines.msd import MSD, MultiSteepest
from baselines.nt import NT
from baselines.part import PART, PixelPGD
from baselines.ramp import RAMP, LogitPairing, projected
from baselines.rmc import RMC
from baselines.rst import RST
from baselines.score import SCORE
from harness.attacks.apgd import APGD, _checkpoints
from harness.attacks.attack import Threat, perturb
from harness.attacks.balls import Ball
from harness.attacks.losses import cross_entropy, one_hot, squared_distance
from harness.attacks.pgd import PGD
from harness.core.errors import UserError
from harness.models.networks import gradcam, new_model
from harness.training.contracts import Clock
from harness.training.learner import Optim, Single

L1 = Threat(Ball("l1", Fraction(2)), Fraction(6, 10), 3)
OPTIM = Optim(lr=0.05, weight_decay=5e-4)
LATE = Clock(epoch=3, step=2, epochs=4, steps_per_epoch=3)


def fresh(seed: int = 0) -> torch.nn.Module:
    return new_model("tiny", 1, 10, seed=seed)


def in_double(lab, batch):
    """Both in float64: a rounding that turns a sign in an attack is then too rare to be met."""
    exact = dataclasses.replace(lab, new_model=lambda: lab.new_model().double())
    return exact, dataclasses.replace(batch, x=batch.x.double())


def ce(logits, y):
    """Cross-entropy from the definition."""
    p = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    return -p[torch.arange(len(y)), y].log()


# FAT ------------------------------------------------------------------------------------------


def test_fat_with_endless_patience_is_at(batch, clock):
    patient = FriendlyPGD(LINF, tau=LINF.steps, omega=0.0)
    one = perturb(patient, fresh(), batch.x, batch.y, generator=generator())
    other = perturb(PGD.of(LINF), fresh(), batch.x, batch.y, generator=generator())
    assert torch.equal(one, other)


def test_fat_stops_an_example_as_soon_as_it_is_misclassified(batch):
    model = fresh().eval()
    friendly = perturb(FriendlyPGD(LINF, 0, 0.0), model, batch.x, batch.y, generator=generator())
    full = perturb(PGD.of(LINF), model, batch.x, batch.y, generator=generator())
    stopped = (friendly != full).flatten(1).any(dim=1)
    assert stopped.any()
    assert (model(friendly).argmax(dim=1) != batch.y)[stopped].all()


def test_fat_patience_grows_along_the_run():
    fat = FAT(LINF)
    assert [fat.tau_at(Clock(epoch, 0, 120, 1)) for epoch in (0, 50, 51, 90, 91)] == [0, 0, 1, 1, 2]


def test_fat_keeps_the_batch_order(batch, clock):
    friendly = perturb(FriendlyPGD(LINF, 0, 0.0), fresh(), batch.x, batch.y, generator=generator())
    nearest = torch.cdist(friendly.flatten(1), batch.x.flatten(1), p=float("inf")).argmin(dim=1)
    assert torch.equal(nearest, torch.arange(len(batch.y)))


# IAT ------------------------------------------------------------------------------------------


def test_iat_without_mixing_is_half_half(batch, clock, monkeypatch):
    monkeypatch.setattr("baselines.iat.draw_beta", lambda alpha, generator: 1.0)
    found, reference = (gradient_of(m, batch, clock) for m in (IAT(LINF), HalfHalf(LINF)))
    for one, other in zip(found, reference, strict=True):
        torch.testing.assert_close(one, other)


def test_iat_from_its_formula(batch, clock):
    found = IAT(LINF)(fresh().train(), batch, clock, draws := generator())
    model, draws = fresh().train(), generator()
    adversarial = perturb(PGD.of(LINF), model, batch.x, batch.y, generator=draws)
    total = 0.0
    for x in (batch.x, adversarial):
        lam, order = draw_beta(1.0, draws), shuffle(len(batch.y), draws)
        logits = model(lam * x + (1 - lam) * x[order])
        total = total + (lam * ce(logits, batch.y) + (1 - lam) * ce(logits, batch.y[order])).mean()
    torch.testing.assert_close(found, total / 2)


def test_mixup_weights_are_beta_distributed():
    draws = generator()
    values = torch.tensor([draw_beta(1.0, draws) for _ in range(2000)])
    assert abs(values.mean() - 0.5) < 0.03
    assert abs(values.var() - 1 / 12) < 0.01
    order = torch.arange(4)
    x, y = torch.rand(4, 1, 8, 8), torch.arange(4)
    model = fresh().eval()
    torch.testing.assert_close(mixed_loss(model, x, y, 0.3, order), ce(model(x), y).mean())


# RST ------------------------------------------------------------------------------------------


def test_rst_is_half_half_from_another_start(batch, clock):
    found = RST(LINF)(fresh().train(), batch, clock, generator())
    model = fresh().train()
    attack = PGD.of(LINF, start="normal_unclipped")
    adversarial = perturb(attack, model, batch.x, batch.y, generator=generator())
    expected = (ce(model(adversarial), batch.y).mean() + ce(model(batch.x), batch.y).mean()) / 2
    torch.testing.assert_close(found, expected)
    one, other = (gradient_of(m, batch, clock) for m in (RST(LINF, b=0.0), NT()))
    assert torch.equal(one[1], other[1])


# SCORE ----------------------------------------------------------------------------------------


def test_squared_distance_by_hand():
    p = torch.tensor([[1.0] + [0.0] * 9])
    assert squared_distance(p, p).item() == 0
    assert squared_distance(p, torch.full((1, 10), 0.1)).item() == pytest.approx(0.9)
    assert torch.equal(one_hot(torch.tensor([0]), p), p)


@pytest.mark.parametrize("variant", ["a", "b"])
def test_score_from_its_formula(variant, batch, clock):
    score = SCORE(LINF, variant=variant, c=0.4 if variant == "a" else 0.3)
    trained, model = fresh().train(), fresh().train()
    found = score(trained, batch, clock, generator())
    onehot = torch.eye(10)[batch.y]
    if variant == "a":
        attack, mode = PGD.of(LINF, loss="squared_label"), "train"
        x = perturb(attack, model, batch.x, batch.y, generator=generator(), mode=mode)
        loss = ((model(x).softmax(1) - onehot) ** 2).sum(1)
    else:
        attack = PGD.of(LINF, start="normal", loss="squared_clean")
        x = perturb(attack, model, batch.x, batch.y, generator=generator())
        q, p = model(x).softmax(1), model(batch.x).softmax(1)  # BatchNorm sees x' first
        loss = ((p - onehot) ** 2).sum(1) + 6 * ((q - p) ** 2).sum(1)
    b = score.c**2 * (1 + 1 / 9)
    torch.testing.assert_close(found, torch.clamp(loss - b, min=0).mean())
    assert torch.equal(weights(trained), weights(model))  # running statistics included


def test_score_teaches_nothing_below_its_floor(batch, clock):
    _, gradient, _ = gradient_of(SCORE(LINF, c=10.0), batch, clock)
    assert gradient.abs().max() == 0


# AGR ------------------------------------------------------------------------------------------


def test_agr_gradients():
    robust, natural = torch.randn(2, 50, generator=generator()).unbind()
    against = -natural + 0.1 * robust
    assert torch.dot(against, natural) < 0
    assert abs(torch.dot(reconstructed(against, natural), natural)) < 1e-4
    torch.testing.assert_close(reconstructed(robust, robust), robust)
    assert torch.equal(reconstructed(robust, torch.zeros(50)), robust)
    along = robust + 2 * natural
    s = torch.dot(along, natural) / along.norm() / natural.norm()
    torch.testing.assert_close(reconstructed(along, natural), s * natural + (1 - s) * along)
    assert clipped(robust, 0.1).norm() == pytest.approx(0.1, rel=1e-5)
    assert torch.equal(clipped(robust * 1e-4, 0.1), robust * 1e-4)


def unboxed(model, batch, threat, draws):
    """PGD on l_inf written out: uniform start in the box, iterates in the ball, the box at the end."""
    eps, step = threat.ball.radius, float(threat.step)
    start = torch.rand(batch.x.shape, generator=draws, dtype=batch.x.dtype)
    x = (batch.x + (2 * start - 1) * eps).clamp(0, 1)
    for _ in range(threat.steps):
        x.requires_grad_(True)
        (gradient,) = torch.autograd.grad(ce(model(x), batch.y).sum(), x)
        x = batch.x + (x.detach() + step * gradient.sign() - batch.x).clamp(-eps, eps)
    assert x.min() < 0  # or this test would not see the difference
    return x.clamp(0, 1)


@pytest.mark.parametrize("begin", [0, 1])
def test_agr_update_from_its_formula(begin, lab, batch):
    lab, batch = in_double(lab, batch)
    plain = dataclasses.replace(OPTIM, momentum=0.0, weight_decay=0.0)
    training = AGR(LINF, plain, begin=Fraction(begin)).start(lab)
    training.step(batch, Clock(0, 0, 4, 3))
    model = lab.new_model()
    x = unboxed(model.eval(), batch, LINF, lab.generator("learner"))
    model.train()
    pairs = []
    for images in (batch.x, x):  # in this order through BatchNorm, before the start too
        model.zero_grad()
        ce(model(images), batch.y).mean().backward()
        pairs.append([p.grad.clone() for p in model.parameters()])
    for parameter, c, a in zip(model.parameters(), *pairs, strict=True):
        s = (a * c).sum() / a.norm() / c.norm()
        g = a - (a * c).sum() / (c * c).sum() * c if s <= 0 else s * c + (1 - s) * a
        g = g * min(1.0, float(0.1 / g.norm())) if begin == 0 else a
        parameter.data.sub_(0.05 * g)
    torch.testing.assert_close(weights(training.deployed()), weights(model), rtol=1e-9, atol=1e-10)


# PART and Grad-CAM ----------------------------------------------------------------------------


class HandMade(torch.nn.Module):
    """Features are given, the head is linear: Grad-CAM's weights can be written down."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))

    def features(self, x):
        return torch.cat([x, x**2], dim=1)

    def head(self, features):
        return features.mean(dim=(2, 3)) @ self.weight.T

    def forward(self, x):
        return self.head(self.features(x))


def test_gradcam_by_hand():
    x = torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]])
    # class 1: a_k = weight / 4 = (1/8, 3/4); map = x/8 + 3 x^2/4 at x = 0, 1, 2, 3
    heat = torch.tensor([0.0, 0.875, 3.25, 7.125])
    torch.testing.assert_close(gradcam(HandMade(), x, torch.tensor([1])).flatten(), heat / heat.max())
    # class 0: map = ReLU(x/4 - x^2/2) = 0 everywhere: min-max must not divide by zero
    assert gradcam(HandMade(), x, torch.tensor([0])).abs().max() == 0
    predicted = HandMade()(x).argmax(dim=1)
    assert torch.equal(gradcam(HandMade(), x), gradcam(HandMade(), x, predicted))


def test_part_without_a_start_and_with_equal_radii_is_at(batch):
    """Its start alone sets it apart: anywhere within eps, outside the box as well."""
    model, eps = fresh().eval(), LINF.ball.radius
    one_step = dataclasses.replace(LINF, steps=1)
    noise = torch.rand(batch.x.shape, generator=generator())
    start = (batch.x + (2 * noise - 1) * eps).requires_grad_(True)
    assert start.min() < 0
    (gradient,) = torch.autograd.grad(ce(model(start), batch.y).sum(), start)
    moved = start.detach() + float(LINF.step) * gradient.sign() - batch.x
    expected = (batch.x + moved.clamp(-eps, eps)).clamp(0, 1)
    attack = PixelPGD(one_step, torch.tensor(eps))
    found = perturb(attack, model, batch.x, batch.y, generator=generator())
    torch.testing.assert_close(found, expected)
    assert_same(PART(LINF), AT(LINF), batch, Clock(0, 0, 4, 3))  # still warming up


def test_part_masks_are_those_of_the_jet_picture():
    """Against Pillow and matplotlib, which the released code goes through."""
    import numpy as np
    from matplotlib import colormaps
    from PIL import Image

    model = new_model("tiny", 3, 10, seed=0).eval()
    x = torch.rand(5, 3, 8, 8, generator=generator())
    eps, part = LINF.ball.radius, PART(LINF, low=Fraction(1, 2))
    shares = []
    for heat, found in zip(gradcam(model, x), part.radii(model, x), strict=True):
        enlarged = Image.fromarray(heat[0].numpy()).resize((8, 8), resample=Image.Resampling.BICUBIC)
        picture = colormaps["jet"](np.asarray(enlarged) ** 2)[:, :, :3]
        matters = (picture - picture.mean()) / picture.std() > 1
        radii = np.where(matters, eps, eps / 2).transpose(2, 0, 1)
        assert (np.abs(found.numpy() - radii) > 1e-6).mean() < 0.02  # float32 at the edge of a colour
        shares.append(matters.mean())
    assert 0.1 < np.mean(shares) < 0.4
    grey = PART(LINF).radii(fresh().eval(), torch.rand(2, 1, 8, 8, generator=generator()))
    assert grey.shape == (2, 1, 8, 8)


def test_part_respects_every_pixels_radius(batch):
    model, part = fresh().eval(), PART(LINF, low=Fraction(1, 4))
    radii = part.radii(model, batch.x)
    eps = LINF.ball.radius
    assert sorted(radii.unique().tolist()) == pytest.approx([eps / 4, eps], rel=1e-6)
    x = perturb(PixelPGD(LINF, radii), model, batch.x, batch.y, generator=generator())
    assert ((x - batch.x).abs() <= radii + 1e-6).all()


def test_part_masks_belong_to_their_images(batch):
    model, order = fresh().eval(), torch.randperm(len(batch.y), generator=generator())
    aligned, released = PART(LINF), PART(LINF, masks="as_released")
    assert torch.equal(aligned.radii(model, batch.x[order]), aligned.radii(model, batch.x)[order])
    assert torch.equal(released.radii(model, batch.x), aligned.radii(model, batch.x).roll(1, 0))


# several norms --------------------------------------------------------------------------------


def test_a_norm_given_twice_is_plain_at(batch, clock):
    zero_noise = dataclasses.replace(LINF)
    model = fresh().eval()
    with torch.no_grad():
        at = AT(zero_noise)(model, batch, clock, generator())
        one = MultiAT((LINF,))(model, batch, clock, generator())
        twice = MultiAT((LINF, LINF))(model, batch, clock, generator())
    assert torch.equal(at, one)
    assert abs(float(at - twice)) < 0.05  # two random starts instead of one


def test_avg_and_max_from_their_formulas(batch, clock):
    model, draws = fresh().eval(), generator()
    losses = [
        ce(model(perturb(PGD.of(t), model, batch.x, batch.y, generator=draws)), batch.y)
        for t in (LINF, L2)
    ]
    average = MultiAT((LINF, L2))(model, batch, clock, generator())
    worst = MultiAT((LINF, L2), "max")(model, batch, clock, generator())
    torch.testing.assert_close(average, (losses[0] + losses[1]).mean() / 2)
    torch.testing.assert_close(worst, torch.maximum(*losses).mean())
    assert worst >= max(loss.mean() for loss in losses)


def test_msd_with_one_norm_is_pgd_from_zero(batch):
    model = fresh().eval()
    for threat in (LINF, L2):
        one = perturb(MultiSteepest((threat,)), model, batch.x, batch.y, generator=generator())
        attack = PGD.of(threat, start="zero")
        iterates = [
            perturb(
                dataclasses.replace(attack, steps=k), model, batch.x, batch.y, generator=generator()
            )
            for k in range(1, threat.steps + 1)
        ]
        heights = torch.stack([cross_entropy(model(x), batch.y) for x in iterates])
        best = torch.stack(iterates)[heights.argmax(dim=0), torch.arange(len(batch.y))]
        torch.testing.assert_close(one, best)


def test_msd_gets_no_worse_with_more_steps_and_stays_in_a_ball(batch):
    model, last = fresh().eval(), torch.full((len(batch.y),), -torch.inf)
    for steps in (1, 2, 4, 8):
        threats = tuple(dataclasses.replace(t, steps=steps) for t in (LINF, L2, L1))
        x = perturb(MultiSteepest(threats), model, batch.x, batch.y, generator=generator())
        now = cross_entropy(model(x), batch.y)
        assert (now >= last - 1e-5).all()
        last = now


def test_msd_in_train_mode_is_another_crafting(batch, clock):
    one, other = (gradient_of(MSD((LINF, L2), mode), batch, clock)[1] for mode in ("eval", "train"))
    assert not torch.equal(one, other)


# E-AT -----------------------------------------------------------------------------------------


def test_eat_draws_the_harder_norm_more_often(lab):
    training = EAT((LINF, L1), OPTIM).start(lab)
    assert training.probabilities() == [0.5, 0.5]
    training.seen, training.errors = [100, 0], [90, 0]
    assert training.probabilities() == [0.5, 0.5]  # until both were seen
    training.seen, training.errors = [100, 100], [75, 25]
    assert training.probabilities() == pytest.approx([0.75, 0.25])
    floored = EAT((LINF, L1), OPTIM, floor=0.1).start(lab)
    floored.seen, floored.errors = [100, 100], [100, 0]
    assert floored.probabilities() == pytest.approx([0.9, 0.1])
    assert sum(floored.probabilities()) == pytest.approx(1)


def test_eat_counts_who_was_wrong_at_any_iterate_in_eval_mode(batch):
    model, attack = fresh().train(), APGD(LINF.ball, 10)
    _, errors = NormAT(dataclasses.replace(LINF, steps=10)).loss_and_errors(model, batch, generator())
    seen = []
    model = fresh().eval()
    hook = model.register_forward_hook(lambda m, i, o: seen.append(o.argmax(1) != batch.y))
    attack.search(model, batch.x, batch.y)
    hook.remove()
    assert len(seen) == 11
    assert errors == int(torch.stack(seen).any(dim=0).sum())


def test_eat_with_one_norm_is_at_with_its_attack(lab, batch):
    eat = EAT((LINF,), OPTIM).start(lab)
    eat.step(batch, Clock(0, 0, 4, 3))
    model = lab.new_model().train()
    attack = APGD(LINF.ball, LINF.steps)
    x = perturb(attack, model, batch.x, batch.y, generator=generator())
    ce(model(x), batch.y).mean().backward()
    alone = Single(NormAT(LINF), OPTIM).start(lab)
    alone.step(batch, Clock(0, 0, 4, 3))
    torch.testing.assert_close(weights(eat.deployed()), weights(alone.deployed()))
    stepped = (
        next(iter(model.parameters())) * (1 - 0.05 * 5e-4) - 0.05 * next(iter(model.parameters())).grad
    )
    torch.testing.assert_close(next(iter(eat.deployed().parameters())), stepped)


def test_fine_tuning_begins_at_the_parent(lab):
    parent = fresh(3)
    grown = dataclasses.replace(lab, parents=(parent,))
    assert torch.equal(weights(EAT((LINF, L1), OPTIM).start(grown).deployed()), weights(parent))
    assert torch.equal(weights(RAMP((LINF, L2), OPTIM).start(grown).deployed()), weights(parent))


# APGD -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threat", [LINF, L2, L1], ids=lambda t: t.norm)
def test_apgd_never_falls_below_the_image_and_rises_with_steps(threat, batch):
    model = fresh().eval()
    last = cross_entropy(model(batch.x), batch.y)
    for steps in (1, 5, 10):
        x = perturb(APGD(threat.ball, steps), model, batch.x, batch.y, generator=generator())
        now = cross_entropy(model(x), batch.y)
        assert (now >= cross_entropy(model(batch.x), batch.y) - 1e-5).all()
        assert now.mean() >= last.mean() - 1e-5
        last = now


def test_l1_apgd_begins_with_one_coordinate_in_twenty(batch):
    model, radius = fresh().eval(), L1.ball.radius
    x = batch.x * 0.5 + 0.25  # room on both sides
    found = perturb(APGD(L1.ball, 1), model, x, batch.y, generator=generator()) - x
    moved = found.abs().gt(1e-7).flatten(1).sum(dim=1)
    assert set(moved.tolist()) <= {0, 3}  # of 64; 0 where the first step does not pay
    assert (moved == 3).any()
    assert found.abs().amax() <= radius / 3 + 1e-6  # the radius, spread over three


def test_apgd_checkpoints():
    assert _checkpoints(10, "l1") == set(range(1, 11))
    assert _checkpoints(100, "l1") == set(range(4, 101, 4))
    assert _checkpoints(10, "linf") == {2, *range(3, 11)}


@pytest.mark.parametrize("threat", [LINF, L2], ids=lambda t: t.norm)
def test_apgd_is_no_weaker_than_pgd_with_its_steps(threat, batch):
    model = fresh().eval()
    apgd = perturb(APGD(threat.ball, 10), model, batch.x, batch.y, generator=generator())
    steps = dataclasses.replace(PGD.of(threat, start="zero"), steps=10)
    pgd = perturb(steps, model, batch.x, batch.y, generator=generator())
    height = [float(cross_entropy(model(x), batch.y).mean()) for x in (apgd, pgd)]
    assert height[0] >= 0.97 * height[1]


# RMC ------------------------------------------------------------------------------------------


@pytest.fixture
def curve(lab):
    ends = fresh(1), fresh(2)
    return RMC((LINF, L2), OPTIM).start(dataclasses.replace(lab, parents=ends)), ends


def test_rmc_ends_are_exact_and_stay(curve, batch):
    training, (a, b) = curve
    before = [weights(end).clone() for end in (a, b)]
    for clock in clocks()[:3]:
        training.step(batch, clock)
    for t, end in ((0.0, a), (1.0, b)):
        assert all(torch.equal(p, q) for p, q in zip(training.point(t), end.parameters(), strict=True))
    assert all(torch.equal(weights(end), kept) for end, kept in zip((a, b), before, strict=True))


def test_rmc_gradient_from_autograd(lab, batch):
    lab, batch = in_double(lab, batch)
    ends = fresh(1).double(), fresh(2).double()
    training = RMC((LINF, L2), OPTIM).start(dataclasses.replace(lab, parents=ends))
    w = [p.detach().clone().requires_grad_(True) for p in training.bend]
    draws = training.lab.generator("curve")
    t = float(torch.rand(1, generator=draws))
    theta = [
        (1 - t) ** 2 * a.detach() + 2 * t * (1 - t) * v + t**2 * b.detach()
        for a, v, b in zip(ends[0].parameters(), w, ends[1].parameters(), strict=True)
    ]
    model = training.lab.new_model().train()
    names = [name for name, _ in model.named_parameters()]
    training._move_to(t)
    x = perturb(
        MultiSteepest((LINF, L2)),
        training.model.train(),
        batch.x,
        batch.y,
        generator=draws,
        mode="train",
    )
    logits = torch.func.functional_call(model, dict(zip(names, theta, strict=True)), (x,))
    decay = sum((p**2).sum() for p in theta) * OPTIM.weight_decay / 2
    expected = torch.autograd.grad(ce(logits, batch.y).mean() + decay, w)
    training.step(batch, Clock(0, 0, 4, 3))
    for parameter, gradient in zip(training.bend, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-10, atol=1e-12)


def test_rmc_deploys_the_best_worst_norm_point(curve, monkeypatch):
    training, _ = curve
    monkeypatch.setattr(training, "_worst_norm", lambda t: -abs(t - 0.7))
    deployed = training.deployed()
    for found, wanted in zip(deployed.parameters(), training.point(0.7), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_number_of_parents_that_a_method_cannot_use_is_refused(plan):
    for slug, parents, wanted in (("rmc", ("at",), "2 parents of rmc"), ("at", ("nt",), "0 parents")):
        with pytest.raises(UserError, match=f"{wanted}.* found 1"):
            dataclasses.replace(plan.train_run(slug, "cifar10", "resnet18", 0), parents=parents)


# RAMP -----------------------------------------------------------------------------------------


def test_ramp_loss_from_its_formula(batch, clock):
    """In train mode: the worse example goes through the network as a batch of its own."""
    trained, model = fresh().train(), fresh()
    found = LogitPairing((LINF, L2), lam=5.0)(trained, batch, clock, generator())
    model.eval()
    x_q, x_r = (
        perturb(APGD(t.ball, t.steps), model, batch.x, batch.y, generator=generator())
        for t in (LINF, L2)
    )
    with torch.no_grad():
        harder = ce(model(x_q), batch.y) > ce(model(x_r), batch.y)
    model.train()
    r, q = model(x_r), model(x_q)
    worse = ce(model(torch.where(harder[:, None, None, None], x_q, x_r)), batch.y).mean()
    right = q.argmax(1) == batch.y
    pair = (q.softmax(1) * (q.log_softmax(1) - r.log_softmax(1))).sum(1)[right].mean()
    torch.testing.assert_close(found, worse + 5 * torch.nan_to_num(pair))
    assert torch.equal(weights(trained), weights(model))


def test_ramp_projects_running_statistics_too(lab, batch):
    training = RAMP((LINF, L2), OPTIM).start(lab)
    training.step(batch, Clock(0, 0, 4, 2))
    before = {name: b.clone() for name, b in training.robust.model.named_buffers()}
    natural = dict(training.natural.model.named_buffers())
    origin = dict(training.origin.named_buffers())
    training._project()
    for name, found in training.robust.model.named_buffers():
        if found.is_floating_point():
            a, n = before[name] - origin[name], natural[name] - origin[name]
            torch.testing.assert_close(found, projected(origin[name], a, n, 0.5))


def test_ramp_projection():
    w, a, n = torch.randn(3, 20, generator=generator()).unbind()
    cosine = max(float(torch.dot(a, n) / a.norm() / n.norm()), 0)
    torch.testing.assert_close(projected(w, a, n, 0.5), w + 0.5 * a + 0.5 * cosine * n)
    torch.testing.assert_close(projected(w, a, -a, 0.5), w + 0.5 * a)


def test_ramp_without_projection_is_its_robust_learner(lab, batch):
    lab, batch = in_double(lab, batch)
    ramp = RAMP((LINF, L2), OPTIM, beta=0.0).start(lab)
    alone = Single(LogitPairing((LINF, L2), 5.0), OPTIM).start(lab, "robust")
    for clock in clocks(epochs=4):
        ramp.step(batch, clock)
        alone.step(batch, clock)
    torch.testing.assert_close(
        weights(ramp.deployed()), weights(alone.deployed()), rtol=1e-10, atol=1e-12
    )


# ImageNet -------------------------------------------------------------------------------------


def test_fast_at_is_one_large_step_in_train_mode(batch, clock):
    found = FastAT(LINF)(fresh().train(), batch, clock, generator())
    model = fresh().train()
    eps, draws = LINF.ball.radius, generator()
    noise = (2 * torch.rand(batch.x.shape, generator=draws) - 1) * eps
    noise.requires_grad_(True)
    probe = fresh().train()
    clipped_images = (batch.x + noise).clamp(0, 1)
    (gradient,) = torch.autograd.grad(ce(probe(clipped_images), batch.y).sum(), noise)
    assert (gradient == 0).any()  # where the box holds back the noise
    delta = (noise.detach() + 1.25 * eps * gradient.sign()).clamp(-eps, eps)
    x = (batch.x + delta).clamp(0, 1)
    torch.testing.assert_close(found, ce(model(x), batch.y).mean())


def test_imagenet_at_is_at_with_three_steps(batch, clock):
    cheap = Threat(LINF.ball, LINF.ball.eps * Fraction(2, 3), 3)
    assert_same(ImageNetAT(LINF), AT(cheap), batch, clock)
