"""What is kept of a run while it trains, beyond its losses: its learners, epoch by epoch.

Every run of several networks: each one's distance to the deployed one. A run with a `watch`: each one's
accuracy on held-out training images, under attacks made from each of them, and at some epochs those
adversarial images themselves (as bytes: to look at, not to measure with).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.attacks import perturb
from harness.contracts import Ensemble, Lab, Training
from harness.identity import seed_from
from harness.runs import TrainRun
from harness.weights import distance


class Watcher:
    def __init__(self, run: TrainRun, lab: Lab) -> None:
        self.run, self.device = run, lab.device
        examples = run.watch.examples if run.watch else 0
        self.x, self.y = lab.validation.x[:examples], lab.validation.y[:examples]
        self.images: dict[str, Tensor] = {}  # "<epoch>:<network>" -> uint8

    def look(self, training: Training, epoch: int) -> dict[str, float]:
        if not isinstance(training, Ensemble):
            return {}
        networks, deployed = training.networks(), training.deployed()
        seen = {f"distance_{name}": distance(one, deployed) for name, one in networks.items()}
        if self.run.watch is None:
            return seen
        everyone = {**networks, "global": deployed}
        for name, network in everyone.items():
            seen[f"natural:{name}"] = accuracy(network, self.x, self.y)
        for source, network in networks.items():
            generator = torch.Generator(self.device)
            generator.manual_seed(
                seed_from(self.run.seed, "watch", epoch)
            )  # the same start for all
            attack = self.run.watch.attack
            adversarial = perturb(attack, network, self.x, self.y, generator=generator)
            for target, other in everyone.items():
                seen[f"robust:{target}<-{source}"] = accuracy(other, adversarial, self.y)
            if self.run.watch.keeps_images_after(epoch, self.run.recipe.epochs):
                self.images[f"{epoch + 1}:{source}"] = (255 * adversarial).round().byte().cpu()
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
