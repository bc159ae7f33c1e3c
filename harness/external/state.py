"""Which network is this? By all that it has loaded, and by what it answers.

Records belong to a network, not to a file: a `build()` may load weights of its own, and import modules
that change. The key of a network's records is a hash of all its parameters and buffers and of the first
images that it is asked about. What the code makes of these is not in the hash, since another machine
computes other last digits. Logits and input gradients for the fixed images are kept beside the records
and compared, and a network that answers otherwise gets a key of its own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from harness.attacks.attack import input_gradient
from harness.attacks.losses import cross_entropy
from harness.core.files import read_arrays, write_arrays
from harness.data.cache import lock
from harness.machine.device import tf32

EXAMPLES = 8
_MOST = 100  # networks of the same weights and other code
_TOLERANCES = {"logits": 5e-5, "gradient": 1e-2}  # of the largest value


def key(model: nn.Module, x: Tensor, y: Tensor, results: Path, label: str) -> str:
    """The name of the records of a network in eval mode, tried on a data set's first images."""
    x, y = x[:EXAMPLES], y[:EXAMPLES]
    name, found = f"external-{label}-s0-{loaded(model, x)[:10]}", answers(model, x, y)
    folder = results / "external" / "keys"
    with lock(folder / name):
        for number in range(_MOST):
            own = f"{name}.{number}" if number else name
            path = folder / f"{own}.npz"
            if not path.exists():
                write_arrays(path, found)
            if same(found, read_arrays(path, {n: (np.float32, a.size) for n, a in found.items()})):
                return own
    raise AssertionError(f"{_MOST} networks with the weights of {name}")


def loaded(model: nn.Module, x: Tensor) -> str:
    """A hash of all parameters and buffers, also of those that no state_dict holds, and of images."""
    digest = hashlib.sha256()
    state = {**dict(model.named_parameters()), **dict(model.named_buffers()), "images": x}
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return digest.hexdigest()


@tf32(False)
def answers(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, np.ndarray]:
    """Logits and input gradients for images and for noise. What is drawn at random is drawn from a
    fixed seed."""
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x)
    x, y = torch.cat([x, noise]), torch.cat([y, y])
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(0)
        with torch.no_grad():
            logits = model(x)
        torch.manual_seed(0)
        gradient = input_gradient(model, x, lambda z: cross_entropy(z, y))
    found = {"logits": logits, "gradient": gradient}
    return {name: t.float().cpu().contiguous().numpy() for name, t in found.items()}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Equal but for rounding; NaN equals NaN."""
    return one.keys() == other.keys() and all(
        one[name].shape == other[name].shape
        and np.allclose(
            one[name],
            other[name],
            rtol=0,
            atol=share * float(np.nanmax(np.abs(other[name]), initial=0)),
            equal_nan=True,
        )
        for name, share in _TOLERANCES.items()
    )
