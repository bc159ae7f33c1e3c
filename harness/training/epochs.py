"""The end of an epoch: which epoch to deploy, how the learners differ, and the checkpoint.

`Selector` compares epochs by accuracy, where the best one is deployed rather than the last.

`Watcher` follows a training of several networks, for the figures: each network's distance to the
deployed one, and Theorem 2's term (Generalist++, eq. 12), sum_a gamma_a |theta_a - theta_bar|^2, with
gamma of the epoch's last step. For theta_bar, `theorem2` takes the global learner, as the text does
("the previous global iterate"); `theorem2_mean` takes the learners' mean sum_a gamma_a theta_a, which
gives the smallest value. A run with a `watch` also measures each network's accuracy on held-out
training images, under attacks on each of them, and at some epochs keeps those adversarial images. What
else it may measure is in harness/training/mixtures.py.

The learners are measured as the epoch leaves them, "before being re-initialized" (Zipper C.1). If a
redistribution follows, they are measured again after it, in columns whose names end with AFTER.

A checkpoint is a file from which a run continues; it has a checksum and no pickle.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.attacks.attack import perturb
from harness.core.errors import expected
from harness.core.files import read_with_checksum, write_with_checksum
from harness.core.paths import AFTER, fingerprint
from harness.data import load
from harness.machine.device import tf32
from harness.training.batches import on_device, seeded
from harness.training.contracts import Clock, Ensemble, Lab, Training
from harness.training.mixtures import Tested, lines, losses
from harness.training.runs import Judge, TrainRun
from harness.training.weights import distance, spread

Networks = Mapping[str, nn.Module]


class Selector:
    """Scores each epoch by natural plus robust accuracy and keeps the weights of the best."""

    def __init__(self, run: TrainRun, device: torch.device) -> None:
        self.run, self.device = run, device
        self.best: dict[str, Any] = {"epoch": None, "score": -1.0, "model": None}
        if run.selection.use != "last":
            split = "test" if run.selection.use == "paper-test" else "validation"
            self.images = load(run.dataset, split)

    @tf32(False)
    def judge(self, training: Training, epoch: int) -> dict[str, float]:
        """Natural accuracy, mean robust accuracy, and, if there are several norms, that of each."""
        if self.run.selection.use == "last":
            return {}
        attacks = {f"robust_{one.ball.norm}": one for one in self.run.selection.attacks}
        model = training.deployed()  # only here: some methods compute it at a cost
        generator = seeded(self.device, self.run.seed, "select", epoch)
        size, correct = self.run.recipe.batch_size, dict.fromkeys(["natural", *attacks], 0)
        for first in range(0, len(self.images), size):
            x, y = on_device(self.images.take(slice(first, first + size)), self.device)
            correct["natural"] += int(right(model, x, y).sum())
            for name, attack in attacks.items():
                adversarial = perturb(attack, model, x, y, generator=generator)
                correct[name] += int(right(model, adversarial, y).sum())
        each = {name: count / len(self.images) for name, count in correct.items()}
        found = {"natural": each.pop("natural")}
        if each:
            found["robust"] = sum(each.values()) / len(each)
        score = sum(found.values())
        if score > self.best["score"] and found["natural"] >= (self.run.selection.gate or 0):
            state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.best = {"epoch": epoch, "score": score, "model": state}
        return found | (each if len(each) > 1 else {})


class Watcher:
    """Measures the networks of an `Ensemble`; does nothing for other trainings."""

    def __init__(self, run: TrainRun, lab: Lab) -> None:
        self.run, self.device = run, lab.device
        examples = run.watch.examples if run.watch else 0
        self.x, self.y = lab.validation.x[:examples], lab.validation.y[:examples]
        self.images: dict[str, Tensor] = {}  # "<epoch>:<network>" -> uint8

    @tf32(False)
    def measure(self, training: Training, clock: Clock) -> dict[str, float]:
        """The epoch's numbers; `clock` is that of its last step."""
        if not isinstance(training, Ensemble):
            return {}
        shares, deployed = training.shares(clock), training.deployed()
        networks = training.networks()
        adversarial = self._attacked(networks, clock.epoch)
        measured = self._compared(networks, deployed, shares, adversarial)
        if self.run.watch and self.run.watch.losses:
            measured |= losses(networks, deployed, shares, self._tested(clock.epoch))
        if self.run.watch and self.run.watch.keeps_images_after(clock.epoch, clock.epochs):
            for name, images in adversarial.items():
                self.images[f"{clock.epoch + 1}:{name}"] = (255 * images).round().byte().cpu()
        if clock.epoch + 1 == clock.epochs:  # no step follows, so no redistribution
            return measured
        following = Clock(clock.epoch + 1, 0, clock.epochs, clock.steps_per_epoch)
        overwritten = training.redistributed(following)
        if overwritten is None:
            return measured
        if self.run.watch and self.run.watch.line:
            measured |= lines(networks, self.run.watch.line, self._tested(clock.epoch))
        adversarial = self._attacked(overwritten, clock.epoch)
        after = self._compared(overwritten, deployed, shares, adversarial)
        return measured | {f"{name}{AFTER}": value for name, value in after.items()}

    def _attacked(self, networks: Networks, epoch: int) -> dict[str, Tensor]:
        """Adversarial images for each network, from the same start; once per network object."""
        if self.run.watch is None:
            return {}
        made: dict[nn.Module, Tensor] = {}
        for network in networks.values():
            if network not in made:
                generator = seeded(self.device, self.run.seed, "watch", epoch)
                attack = self.run.watch.attack
                made[network] = perturb(attack, network, self.x, self.y, generator=generator)
        return {name: made[network] for name, network in networks.items()}

    def _tested(self, epoch: int) -> Callable[[nn.Module], Tested]:
        """The logits of a network on the images, as they are and under its own attack."""

        def tested(network: nn.Module) -> Tested:
            (adversarial,) = self._attacked({"it": network}, epoch).values()
            return logits(network, self.x), logits(network, adversarial), self.y

        return tested

    def _compared(
        self,
        networks: Networks,
        deployed: nn.Module,
        shares: Mapping[str, float],
        adversarial: Mapping[str, Tensor],
    ) -> dict[str, float]:
        found = {f"distance_{name}": distance(one, deployed) for name, one in networks.items()}
        weights = [shares[name] for name in networks]
        found["theorem2"] = spread(list(networks.values()), weights, deployed)
        found["theorem2_mean"] = spread(list(networks.values()), weights, None)
        everyone = {**networks, "global": deployed} if self.run.watch else {}
        for name, network in everyone.items():
            found[f"natural:{name}"] = accuracy(network, self.x, self.y)
        for source, images in adversarial.items():
            for target, other in everyone.items():
                found[f"robust:{target}<-{source}"] = accuracy(other, images, self.y)
        return found


@torch.no_grad()
def logits(model: nn.Module, x: Tensor) -> Tensor:
    """In eval mode; the network's mode is kept."""
    was_training = model.training
    model.eval()
    found = model(x)
    model.train(was_training)
    return found


def right(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Which images are classified correctly."""
    return logits(model, x).argmax(dim=1) == y


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float(right(model, x, y).float().mean())


@dataclass(frozen=True)
class Position:
    """How far a run is, in whole steps. Replaced, never edited, so a signal finds it complete."""

    epoch: int = 0
    step: int = 0  # of this epoch that are done; all of them while the epoch is measured
    sums: Mapping[str, float] = field(default_factory=dict)  # of reports / steps per epoch
    history: tuple[Mapping[str, float], ...] = ()  # one row per epoch before this one

    def after_step(self, reported: Mapping[str, float], steps: int) -> Position:
        sums = {name: self.sums.get(name, 0.0) + value / steps for name, value in reported.items()}
        return Position(self.epoch, self.step + 1, {**self.sums, **sums}, self.history)

    def after_epoch(self, measured: Mapping[str, float]) -> Position:
        row = {"epoch": self.epoch + 1, **self.sums, **measured}
        return Position(self.epoch + 1, history=(*self.history, row))

    def __str__(self) -> str:
        return f"epoch {self.epoch}" + (f" and {self.step} steps" if self.step else "")


def save_checkpoint(
    path: Path, run: TrainRun, learned: dict, position: Position, others: Mapping[str, Any]
) -> None:
    buffer = io.BytesIO()
    torch.save({"run": run.id, "training": learned, **asdict(position), **others}, buffer)
    write_with_checksum(path, buffer.getvalue())


def read_checkpoint(path: Path, run: TrainRun, judges: Sequence[Judge] = ()) -> dict[str, Any] | None:
    """What `save_checkpoint` wrote, on the CPU; refused if damaged or another run's. None if there is
    nothing, or if the epochs were not judged in all these ways."""
    if not path.exists():
        return None
    payload = io.BytesIO(read_with_checksum(path, "checkpoint"))
    try:
        with zipfile.ZipFile(payload) as archive:  # torch compresses nothing: so it unpacks to no more
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("compressed members")
        payload.seek(0)
        state = torch.load(payload, map_location="cpu", weights_only=True)
        owner = state["run"]
    except Exception as error:  # a wrong or hostile file fails in many ways
        reason = str(error).partition("\n")[0]
        found = f"something else ({type(error).__name__}: {reason})"
        what = f"nothing but the tensors of a checkpoint in {path}"
        raise expected(what, found, "delete the file") from None
    if owner != run.id:
        raise expected(f"a checkpoint of {run.id}", f"one of {owner} in {path}", "delete it")
    if any(fingerprint(judge) not in state.get("judged", {}) for judge in judges):
        return None
    # Old checkpoints have no steps: they were written at the end of an epoch.
    state["position"] = Position(
        state["epoch"], state.get("step", 0), state.get("sums", {}), tuple(state["history"])
    )
    return state
