"""A network's weights from a file: safetensors, or what `torch.save` wrote of a state_dict.

Nothing in the file is run (`weights_only`). Names may begin with `module.` (DataParallel) or
`_orig_mod.` (torch.compile), and the state_dict may lie under a name such as `state_dict` in a
checkpoint.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from
from torch import Tensor, nn

from harness.core.errors import expected
from harness.core.files import sha256

_PREFIXES = re.compile(r"^((module|_orig_mod)\.)+")
_NESTED = ("state_dict", "model_state_dict", "model", "net", "weights")
_LONGEST = 300


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a file's weights into a network; every name and shape must fit."""
    found = _plain(read_state(path))
    wanted = model.state_dict()
    if _plain(wanted).keys() == found.keys():  # the network may be the one with the prefixes
        found = {name: found[_PREFIXES.sub("", name)] for name in wanted}
    try:
        model.load_state_dict(found)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:_LONGEST]
        raise expected(f"weights of this network in {path}", reason, "give its own file") from None


def read_state(path: Path) -> dict[str, Tensor]:
    """Name -> tensor."""
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        try:
            return tensors_from(data)
        except SafetensorError as error:
            raise expected(f"a safetensors file in {path}", error, "give another file") from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0][:_LONGEST]
        remedy = "save it with torch.save(model.state_dict(), path), which holds no objects"
        raise expected(f"a state_dict in {path}", f"something else ({reason})", remedy) from None
    return _state(content, path)


def _state(content: Any, path: Path) -> dict[str, Tensor]:
    if isinstance(content, Mapping):
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return dict(content)
        inner = [content[name] for name in _NESTED if isinstance(content.get(name), Mapping)]
        if inner:
            return _state(inner[0], path)
        found = f"the keys {', '.join(map(str, list(content)[:10]))}"
    else:
        found = f"a {type(content).__name__}"
    raise expected(f"a state_dict in {path}", found, f"put it under {_NESTED[0]!r}")


def _plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes of wrappers, and without DataParallel's and SWA's counter."""
    return {_PREFIXES.sub("", name): value for name, value in state.items() if name != "n_averaged"}


def named(path: Path | None) -> str:
    """A weights file in a report."""
    return f"{path} (sha256 {sha256(path.read_bytes())[:16]}...)" if path else "as the network came"
