"""What is measured after each epoch: which one to deploy, and how the learners differ.

Every training of several networks: each one's distance to the deployed one, and Theorem 2's term
(Generalist++, eq. 12), sum_a gamma_a |theta_a - theta_bar|^2, with gamma as of the epoch's last step.
`theorem2` takes for theta_bar the global learner, as the text does ("the previous global iterate");
`theorem2_mean` the learners' own mean sum_a gamma_a theta_a, the smallest that any theta_bar gives.

A run with a `watch`: each one's accuracy on held-out training images, under attacks made from each
of them, and at some epochs those adversarial images themselves (as bytes: to look at, not to measure).

All this is of the learners as the epoch leaves them, "before being re-initialized" (Zipper C.1). Where
a redistribution comes next, the same numbers of the learners after it follow, their names with AFTER.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from harness.attacks.attack import perturb
from harness.core.identity import seed_from
from harness.core.paths import AFTER
from harness.data import load
from harness.training.batches import on_device, seeded
from harness.training.contracts import Clock, Ensemble, Lab, Training
from harness.training.runs import TrainRun
from harness.training.weights import distance, spread

Networks = Mapping[str, nn.Module]


class Selector:
    """Judges each epoch by natural plus robust accuracy, and keeps the best one's weights."""

    def __init__(self, run: TrainRun, device: torch.device) -> None:
        self.run, self.device = run, device
        self.best: dict[str, Any] = {"epoch": None, "score": -1.0, "model": None}
        if run.selection.use != "last":
            split = "test" if run.selection.use == "paper-test" else "validation"
            self.judges = load(run.dataset, split)

    def judge(self, training: Training, epoch: int) -> dict[str, float]:
        """Natural accuracy, robust accuracy (the mean over the norms), and that of each of several."""
        if self.run.selection.use == "last":
            return {}
        attacks = {f"robust_{one.ball.norm}": one for one in self.run.selection.attacks}
        model = training.deployed()  # asked for only here: some methods choose it at a cost
        generator = seeded(self.device, self.run.seed, "select", epoch)
        size, correct = self.run.recipe.batch_size, dict.fromkeys(["natural", *attacks], 0)
        for first in range(0, len(self.judges), size):
            x, y = on_device(self.judges.take(slice(first, first + size)), self.device)
            correct["natural"] += int(right(model, x, y).sum())
            for name, attack in attacks.items():
                adversarial = perturb(attack, model, x, y, generator=generator)
                correct[name] += int(right(model, adversarial, y).sum())
        each = {name: count / len(self.judges) for name, count in correct.items()}
        found = {"natural": each.pop("natural")}
        if each:
            found["robust"] = sum(each.values()) / len(each)
        score = sum(found.values())
        if score > self.best["score"] and found["natural"] >= (self.run.selection.gate or 0):
            state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.best = {"epoch": epoch, "score": score, "model": state}
        return found | (each if len(each) > 1 else {})


class Watcher:
    def __init__(self, run: TrainRun, lab: Lab) -> None:
        self.run, self.device = run, lab.device
        examples = run.watch.examples if run.watch else 0
        self.x, self.y = lab.validation.x[:examples], lab.validation.y[:examples]
        self.images: dict[str, Tensor] = {}  # "<epoch>:<network>" -> uint8

    def look(self, training: Training, clock: Clock) -> dict[str, float]:
        """After `clock`'s step, the last of its epoch."""
        if not isinstance(training, Ensemble):
            return {}
        shares, deployed = training.shares(clock), training.deployed()
        networks = training.networks()
        adversarial = self._attacked(networks, clock.epoch)
        seen = self._seen(networks, deployed, shares, adversarial)
        if self.run.watch and self.run.watch.keeps_images_after(clock.epoch, clock.epochs):
            for name, images in adversarial.items():
                kept = (255 * images).round().byte().cpu()
                self.images[f"{clock.epoch + 1}:{name}"] = kept
        if clock.epoch + 1 == clock.epochs:  # no step comes, and so no redistribution
            return seen
        following = Clock(clock.epoch + 1, 0, clock.epochs, clock.steps_per_epoch)
        overwritten = training.redistributed(following)
        if overwritten is None:
            return seen
        adversarial = self._attacked(overwritten, clock.epoch)
        after = self._seen(overwritten, deployed, shares, adversarial)
        return seen | {f"{name}{AFTER}": value for name, value in after.items()}

    def _attacked(self, networks: Networks, epoch: int) -> dict[str, Tensor]:
        """Adversarial images of each network, from the same start; of one network only once."""
        if self.run.watch is None:
            return {}
        made: dict[nn.Module, Tensor] = {}
        for network in networks.values():
            if network not in made:
                generator = torch.Generator(self.device)
                generator.manual_seed(seed_from(self.run.seed, "watch", epoch))
                attack = self.run.watch.attack
                made[network] = perturb(attack, network, self.x, self.y, generator=generator)
        return {name: made[network] for name, network in networks.items()}

    def _seen(
        self,
        networks: Networks,
        deployed: nn.Module,
        shares: Mapping[str, float],
        adversarial: Mapping[str, Tensor],
    ) -> dict[str, float]:
        seen = {f"distance_{name}": distance(one, deployed) for name, one in networks.items()}
        weights = [shares[name] for name in networks]
        seen["theorem2"] = spread(list(networks.values()), weights, deployed)
        seen["theorem2_mean"] = spread(list(networks.values()), weights, None)
        if self.run.watch is None:
            return seen
        everyone = {**networks, "global": deployed}
        for name, network in everyone.items():
            seen[f"natural:{name}"] = accuracy(network, self.x, self.y)
        for source, images in adversarial.items():
            for target, other in everyone.items():
                seen[f"robust:{target}<-{source}"] = accuracy(other, images, self.y)
        return seen


@torch.no_grad()
def right(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Who is classified correctly, whatever mode the network is in."""
    was_training = model.training
    model.eval()
    correct = model(x).argmax(dim=1) == y
    model.train(was_training)
    return correct


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float(right(model, x, y).float().mean())
