"""What a run keeps of its learners at the end of every epoch, for the figures of training.

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

import torch
from torch import Tensor, nn

from harness.attacks.attack import perturb
from harness.core.descriptions import AFTER
from harness.core.identity import seed_from
from harness.training.contracts import Clock, Ensemble, Lab, Training
from harness.training.runs import TrainRun
from harness.training.weights import distance, spread

Networks = Mapping[str, nn.Module]


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
