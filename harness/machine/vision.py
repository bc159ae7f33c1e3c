"""torchvision, beside any build of torch.

torchvision's default wheel beside a CPU-only torch fails at import ("operator torchvision::nms does
not exist"), because its compiled operators are absent and it registers fake versions of them. We use
only its data sets, so it is enough to declare the two operators first. Imported only where it is
used: it costs 1.5 s per process.
"""

from __future__ import annotations

from typing import Any

_SIGNATURES = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: list[Any] = []  # a torch Library lives as long as someone holds it


def import_torchvision() -> Any:
    import torch

    if not _declared:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name, signature in _SIGNATURES.items():
            if not hasattr(torch.ops.torchvision, name):
                library.define(signature)
        _declared.append(library)
    import torchvision

    return torchvision


def torchvision_datasets() -> Any:
    import_torchvision()
    import torchvision.datasets

    return torchvision.datasets
