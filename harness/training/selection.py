"""Which epoch is deployed, where it is the best one rather than the last."""

from __future__ import annotations

from typing import Any

import torch

from harness.attacks.attack import perturb
from harness.data import load
from harness.training.batches import on_device, seeded
from harness.training.contracts import Training
from harness.training.runs import TrainRun
from harness.training.watch import right


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
