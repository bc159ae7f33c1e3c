"""Use a network without changing it; and Grad-CAM, which does.

Grad-CAM: Selvaraju et al., ICCV 2017 (arXiv 1610.02391): which pixels matter for a class.
map = ReLU(sum_k a_k F_k), a_k = mean over positions of d logit_class / d F_k, F the last stage's
features (their eq. 1 and 2); then min-max to [0,1] per image and resized to the image.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.core.lazy import torch


@contextmanager
def frozen(model: torch.nn.Module, mode: str = "eval") -> Iterator[None]:
    """The model in a mode, without parameter gradients; afterwards all is as it was before."""
    training = [(module, module.training) for module in model.modules()]
    wanted = [(p, p.requires_grad) for p in model.parameters()]
    buffers = [b.clone() for b in model.buffers()] if mode == "train" else []
    model.train(mode == "train")
    for parameter, _ in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, flag in wanted:
            parameter.requires_grad_(flag)
        with torch.no_grad():
            for buffer, kept in zip(model.buffers(), buffers, strict=False):
                buffer.copy_(kept)


def gradcam(
    model: torch.nn.Module,
    x: torch.Tensor,
    classes: torch.Tensor | None = None,
    enlarge: bool = True,
) -> torch.Tensor:
    """Maps (n, 1, height, width) in [0,1], in eval mode; `classes` default to the predicted ones.

    They have the size of the image or, without `enlarge`, of the features.
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
    heat = (heat - low) / (high - low).clamp_min(1e-12)
    if not enlarge:
        return heat
    return torch.nn.functional.interpolate(
        heat, size=x.shape[2:], mode="bilinear", align_corners=False
    )
