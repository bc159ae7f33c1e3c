"""A small trained classifier of digits, and what may be odd about one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.data import load
from harness.training.batches import unit

SMALL = {
    "data": "digits",
    "scale": "ci",
    "examples": 60,
    "batch_size": 30,
    "device": "cpu",
    "quiet": True,
}
SOURCE = "from torch import nn\n\n\ndef build():\n    return nn.Sequential(\n" + (
    "        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)\n    )\n"
)


def plain() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def trained(seed: int = 0, steps: int = 100) -> nn.Sequential:
    """Right on 19 of 20 digits after half a second."""
    images = load("digits", "train")
    x, y = unit(torch.from_numpy(images.x)), torch.from_numpy(images.y)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = plain()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


@dataclass
class Sizes:
    """Dataclasses look for their module in sys.modules."""

    hidden: int = 32


class Around(nn.Module):
    """Another network's outputs, changed."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        return self.change(x, self.model(x))

    def change(self, x: Tensor, z: Tensor) -> Any:
        return z


class Saturated(Around):
    """Probabilities of 20 times the logits: 0 and 1 in float32."""

    def change(self, x: Tensor, z: Tensor) -> Tensor:
        return (20 * z).softmax(dim=1)


class Noisy(Around):
    def change(self, x: Tensor, z: Tensor) -> Tensor:
        return z + 0.3 * torch.randn_like(z)


class Twice(Around):
    """Logits and features."""

    def change(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return z, x.flatten(1)


class Two(Around):
    """Two heads, of which neither is named."""

    def change(self, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        return z, -z


class Named(Around):
    def change(self, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        return {"features": x.flatten(1), "logits": z, "other": -z}


class Unnamed(Around):
    def change(self, x: Tensor, z: Tensor) -> dict[str, Tensor]:
        return {"one": z, "other": -z}


class Cut(Around):
    """No gradient reaches the image."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model(x)


class Rounded(Around):
    """A gradient that is 0 everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return self.model(torch.round(x * 15) / 15)


class Broken(Around):
    def change(self, x: Tensor, z: Tensor) -> Tensor:
        return z / 0 * 0


class Half(Around):
    """Outputs of half precision."""

    def change(self, x: Tensor, z: Tensor) -> Tensor:
        return z.half()


class FixedBatch(Around):
    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.view(64, 1, 8, 8))


class Colour(nn.Module):
    """For images with three channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean(dim=(2, 3))


class Maps(nn.Module):
    """Logits with a width and a height."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 10, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)
