"""Where a run stands, on disk: whole, sealed, without pickle; started again it continues from there."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.core.errors import UserError
from harness.core.files import read_sealed, write_sealed
from harness.training.runs import TrainRun


@dataclass(frozen=True)
class Position:
    """Whole steps only. Replaced, never edited: a signal finds the old one or the new one."""

    epoch: int = 0
    step: int = 0  # steps of this epoch that are done; all of them until the epoch was judged
    sums: Mapping[str, float] = field(default_factory=dict)  # what those steps reported, as means
    history: tuple[Mapping[str, float], ...] = ()  # of the epochs before

    def after_step(self, reported: Mapping[str, float], steps: int) -> Position:
        sums = {name: self.sums.get(name, 0.0) + value / steps for name, value in reported.items()}
        return Position(self.epoch, self.step + 1, {**self.sums, **sums}, self.history)

    def after_epoch(self, seen: Mapping[str, float]) -> Position:
        row = {"epoch": self.epoch + 1, **self.sums, **seen}
        return Position(self.epoch + 1, history=(*self.history, row))

    def __str__(self) -> str:
        return f"epoch {self.epoch}" + (f" and {self.step} steps" if self.step else "")


def save_checkpoint(
    path: Path, run: TrainRun, learned: dict, position: Position, beside: Mapping[str, Any]
) -> None:
    buffer = io.BytesIO()
    state = {"run": run.id, "training": learned, **asdict(position), **beside}
    torch.save(state, buffer)
    write_sealed(path, buffer.getvalue())


def read_checkpoint(path: Path, run: TrainRun, device: torch.device) -> dict[str, Any] | None:
    if not path.exists():
        return None
    payload = io.BytesIO(read_sealed(path, "checkpoint"))
    try:
        state = torch.load(payload, map_location=device, weights_only=True)
        owner = state["run"]
    except Exception as error:  # what is no checkpoint, or a hostile one, fails in many ways
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"expected nothing but the tensors of a checkpoint in {path}, found something else "
            f"({type(error).__name__}: {reason}); delete the file."
        ) from None
    if owner != run.id:
        raise UserError(
            f"expected a checkpoint of {run.id}, found one of {owner} in {path}; delete it."
        )
    # Checkpoints of before there were steps in them were made at the end of an epoch.
    state["position"] = Position(
        state["epoch"], state.get("step", 0), state.get("sums", {}), tuple(state["history"])
    )
    return state
