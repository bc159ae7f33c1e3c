"""Checkpoints: files from which a run continues; with a checksum, without pickle."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.core.errors import UserError
from harness.core.files import read_with_checksum, write_with_checksum
from harness.training.runs import TrainRun


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
    state = {"run": run.id, "training": learned, **asdict(position), **others}
    torch.save(state, buffer)
    write_with_checksum(path, buffer.getvalue())


def read_checkpoint(path: Path, run: TrainRun, device: torch.device) -> dict[str, Any] | None:
    """What `save_checkpoint` wrote, if anything; refused if damaged or another run's."""
    if not path.exists():
        return None
    payload = io.BytesIO(read_with_checksum(path, "checkpoint"))
    try:
        state = torch.load(payload, map_location=device, weights_only=True)
        owner = state["run"]
    except Exception as error:  # a wrong or hostile file fails in many ways
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"expected nothing but the tensors of a checkpoint in {path}, found something else "
            f"({type(error).__name__}: {reason}); delete the file."
        ) from None
    if owner != run.id:
        raise UserError(
            f"expected a checkpoint of {run.id}, found one of {owner} in {path}; delete it."
        )
    # Old checkpoints have no steps: they were written at the end of an epoch.
    state["position"] = Position(
        state["epoch"], state.get("step", 0), state.get("sums", {}), tuple(state["history"])
    )
    return state
