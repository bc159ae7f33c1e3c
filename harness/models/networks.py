"""Networks, new or trained. Inputs are images in [0,1]; outputs are logits.

Ours are `head(features(x))`: Grad-CAM uses the features, the last stage's map. `FOLDS` names the
convolutions that only a BatchNorm follows, for folding.py. ReLU works in place, since no layer before
it needs its output again; avg_pool2d, unlike mean, keeps its gradient's layout.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load as tensors_from
from torch import Tensor, nn

from harness.core import paths
from harness.core.errors import expected, unknown
from harness.core.files import sha256
from harness.data.sets import SETS
from harness.machine.device import import_torchvision
from harness.models import NETWORKS
from harness.models.folding import frozen


def conv(before: int, width: int, stride: int = 1, side: int = 3) -> nn.Conv2d:
    return nn.Conv2d(before, width, side, stride, padding=side // 2, bias=False)


class PostActivationBlock(nn.Module):
    """conv-BN-ReLU-conv-BN, added to the shortcut, ReLU."""

    FOLDS = (("conv1", "bn1"), ("conv2", "bn2"), ("shortcut.0", "shortcut.1"))

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(before, width, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != width:
            shortcut = conv(before, width, stride, side=1)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu_()
        return (self.bn2(self.conv2(out)) + self.shortcut(x)).relu_()


class ResNet(nn.Module):
    """A 3x3 stem, stages of post-activation blocks, global average pooling, one linear layer."""

    FOLDS = (("conv1", "bn1"),)

    def __init__(
        self, widths: Sequence[int], blocks: int, channels: int, classes: int, stem_stride: int = 1
    ) -> None:
        super().__init__()
        self.conv1 = conv(channels, widths[0], stem_stride)
        self.bn1 = nn.BatchNorm2d(widths[0])
        stages, before = [], widths[0]
        for number, width in enumerate(widths):
            first = PostActivationBlock(before, width, stride=1 if number == 0 else 2)
            others = [PostActivationBlock(width, width, stride=1) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(first, *others))
            before = width
        self.stages = nn.Sequential(*stages)
        self.linear = nn.Linear(before, classes)

    def features(self, x: Tensor) -> Tensor:
        return self.stages(self.bn1(self.conv1(x)).relu_())

    def head(self, features: Tensor) -> Tensor:
        return self.linear(F.avg_pool2d(features, features.shape[2:]).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class PreActivationBlock(nn.Module):
    """BN-ReLU-conv-BN-ReLU-conv; where the shape changes, the shortcut sees the activation."""

    FOLDS = (("conv1", "bn2"),)

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = conv(before, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width)
        self.shortcut = None if before == width else conv(before, width, stride, side=1)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.bn1(x).relu_()
        out = self.conv2(self.bn2(self.conv1(activated)).relu_())
        return out + (x if self.shortcut is None else self.shortcut(activated))


class WideResNet(nn.Module):
    """Zagoruyko & Komodakis 2016: 16 channels, then three stages of 16k, 32k, 64k."""

    FOLDS = ()

    def __init__(self, blocks: int, widen: int, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = conv(channels, 16)
        layers, before = [], 16
        for number, width in enumerate((16 * widen, 32 * widen, 64 * widen)):
            for block in range(blocks):
                stride = 2 if number > 0 and block == 0 else 1
                layers.append(PreActivationBlock(before, width, stride))
                before = width
        self.blocks = nn.Sequential(*layers)
        self.bn1 = nn.BatchNorm2d(before)
        self.linear = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)

    def features(self, x: Tensor) -> Tensor:
        return self.bn1(self.blocks(self.conv1(x))).relu_()

    def head(self, features: Tensor) -> Tensor:
        return self.linear(F.avg_pool2d(features, features.shape[2:]).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def imagenet_network(name: str, channels: int, classes: int) -> nn.Module:
    if channels != 3:
        raise expected(f"images with 3 channels for {name}", channels, "choose another network")
    import_torchvision()
    from torchvision import models

    return getattr(models, name)(num_classes=classes)


# family -> builder(*sizes, input channels, classes)
FAMILIES: dict[str, Callable[..., nn.Module]] = {
    "resnet": ResNet,
    "wide_resnet": WideResNet,
    "torchvision": imagenet_network,
}


def new_model(name: str, channels: int, num_classes: int, seed: int) -> nn.Module:
    """A network whose initial weights depend on the seed alone."""
    if name not in NETWORKS:
        raise unknown("network", name, NETWORKS, "harness/models/__init__.py")
    family, sizes = NETWORKS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[family](**sizes, channels=channels, classes=num_classes)


def load_model(results: Path, run_id: str) -> nn.Module:
    """A trained network in eval mode; weights without their recorded checksum are refused."""
    path = paths.model(results, run_id)
    about = paths.read_description(results, run_id)
    try:
        weights = path.read_bytes()
    except FileNotFoundError:
        raise paths.untrained(path, run_id) from None
    if sha256(weights) != about["sha256"]:
        what = f"the weights whose checksum is in {path.parent}/run.json"
        found = f"a truncated or altered {path.name}"
        raise expected(what, found, "delete that folder to train it again")
    run, entry = about["run"], SETS[about["run"]["dataset"]]
    model = new_model(run["network"], entry.channels, entry.classes, seed=0)
    model.load_state_dict(tensors_from(weights))
    return model.eval()


def gradcam(model: nn.Module, x: Tensor, classes: Tensor | None = None) -> Tensor:
    """Grad-CAM: maps (n, 1, height, width) in [0,1] of which regions matter for a class, in eval mode.

    Selvaraju et al., ICCV 2017 (arXiv 1610.02391), eq. 1 and 2: ReLU(sum_k a_k F_k), a_k = mean over
    positions of d logit_class / d F_k, F the last stage's features; then min-max to [0,1] per image.
    `classes` default to the predicted ones; a map has the size of the features.
    """
    with frozen(model), torch.enable_grad():
        features = model.features(x).detach().requires_grad_(True)  # type: ignore[operator]
        logits = model.head(features)  # type: ignore[operator]
        if classes is None:
            classes = logits.argmax(dim=1)
        chosen = logits.gather(1, classes[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, features)
        features = features.detach()
    weights = gradient.mean(dim=(2, 3), keepdim=True)
    heat = (weights * features).sum(dim=1, keepdim=True).relu()
    low, high = heat.amin(dim=(2, 3), keepdim=True), heat.amax(dim=(2, 3), keepdim=True)
    return (heat - low) / (high - low).clamp_min(1e-12)
