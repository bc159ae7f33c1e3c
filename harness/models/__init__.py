"""Networks by name, their folded copies for attacks, Grad-CAM, saved weights. Imports data and below.

`resnet18`: He et al. 2016 with the 3x3 stem of the CIFAR literature (11,173,962 parameters for 10
classes). `wrn32_10`: the papers call it WRN-32-10; its code has 5 blocks per stage, which is what
others call WRN-34-10 (46,160,474 parameters). `resnet50` and `wrn50_2`: torchvision's, for ImageNet.
`tiny` and `tiny_wide` are for smoke runs; `small` and `small_wide` for real images on CPUs: their stem
halves the image, so all later layers are four times cheaper.
"""

from typing import Any

# name -> its family in networks.py, and its sizes. No torch here: the plan checks a grid's names.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet18": ("resnet", {"widths": (64, 128, 256, 512), "blocks": 2}),
    "wrn32_10": ("wide_resnet", {"blocks": 5, "widen": 10}),
    "resnet50": ("torchvision", {"name": "resnet50"}),
    "wrn50_2": ("torchvision", {"name": "wide_resnet50_2"}),
    "tiny": ("resnet", {"widths": (16, 32), "blocks": 1}),
    "tiny_wide": ("resnet", {"widths": (16, 48), "blocks": 1}),
    "small": ("resnet", {"widths": (16, 32, 64), "blocks": 1, "stem_stride": 2}),
    "small_wide": ("resnet", {"widths": (32, 64, 128), "blocks": 1, "stem_stride": 2}),
}
