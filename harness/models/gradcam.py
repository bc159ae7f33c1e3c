"""Grad-CAM: Selvaraju et al., ICCV 2017 (arXiv 1610.02391): where a network looks for a class.

map = ReLU(sum_k a_k F_k), a_k = mean over positions of d logit_class / d F_k, F the last stage's
features (their eq. 1 and 2); then min-max to [0,1] per image and resized to the image.
"""

from __future__ import annotations

from harness.core.lazy import torch
from harness.models.frozen import frozen


def gradcam(
    model: torch.nn.Module,
    x: torch.Tensor,
    classes: torch.Tensor | None = None,
    enlarge: bool = True,
) -> torch.Tensor:
    """(n, 1, height, width) in [0,1], in eval mode; `classes` default to the predicted ones.

    Of the image's size, or, if not to `enlarge`, of the features'.
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
