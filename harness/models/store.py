"""Trained models on disk: safetensors beside a description that holds their checksum."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load as tensors_from
from torch import nn

from harness.core import paths
from harness.core.descriptions import description, untrained
from harness.core.errors import UserError
from harness.core.files import sha256
from harness.data.sets import SETS
from harness.models.networks import new_model


def load_model(results: Path, run_id: str) -> nn.Module:
    """A trained network in eval mode, its weights checked against their recorded checksum."""
    path = paths.model(results, run_id)
    about = description(results, run_id)
    try:
        weights = path.read_bytes()
    except FileNotFoundError:
        raise untrained(path, run_id) from None
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
