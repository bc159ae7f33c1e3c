"""Trained models on disk: safetensors beside a description that holds their checksum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load as tensors_from
from torch import nn

from harness import paths
from harness.data.sets import SETS
from harness.errors import UserError
from harness.files import sha256
from harness.models import new_model


def description(results: Path, run_id: str) -> dict[str, Any]:
    """What a run's training wrote down about it: its fields, its cost, the checksum of its weights."""
    return json.loads(paths.description(results, run_id).read_text())


def load_model(results: Path, run_id: str) -> nn.Module:
    """A trained network in eval mode, its weights checked against their recorded checksum."""
    path = paths.model(results, run_id)
    try:
        about = description(results, run_id)
        weights = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(
            f"expected a trained model in {path.parent}, found no {Path(error.filename).name}; "
            f"train it first (python -m harness.train --run {run_id})."
        ) from None
    if sha256(weights) != about["sha256"]:
        raise UserError(
            f"expected the weights whose checksum is in {path.parent}/run.json, found a truncated "
            f"or altered {path.name}; delete that folder to train it again."
        )
    run = about["run"]
    entry = SETS[run["dataset"]]
    model = new_model(run["network"], entry.channels, entry.classes, seed=0)
    model.load_state_dict(tensors_from(weights))
    return model.eval()
