"""A network as attacks use it: frozen, and in eval mode folded, which takes fewer operations.

In eval mode BatchNorm is an affine map per channel. After a convolution it is folded into the
convolution's weight and bias; elsewhere (pre-activation blocks) it becomes one multiply-add. No tensor
of the copy needs a gradient. It works in the layout of the network, on a CPU in channels_last.

A network lists its pairs of layers in `FOLDS` (networks.py). For one without `FOLDS` an evaluation
looks for them (tracing.py); otherwise it is attacked as it is: folding only saves time. Rounding
differs in the last bits, so whether an attack succeeded is decided by the network itself
(harness/evaluation/probing.py).
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from harness.machine.device import placed
from harness.machine.synchronized import SharedBatchNorm2d

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


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


def folded(model: nn.Module) -> nn.Module | None:
    """The folded copy with the present weights of `model`, or None if it cannot be folded.

    It is built once per network and refreshed at every call, by a few fused operations.
    """
    copied = _copies.get(model)
    if copied is None or not copied.fits(model):
        if not foldable(model):
            return None
        copied = _copies[model] = FoldedCopy(model, _pairs(model))
    copied.refresh()
    return copied.network


def use(model: nn.Module, copied: "FoldedCopy | None") -> None:
    """Attack this copy of a network without `FOLDS` from now on; None: attack the network itself."""
    _copies.pop(model, None)
    if copied is not None:
        _copies[model] = copied


def foldable(model: nn.Module) -> bool:
    """Does this class itself define `FOLDS`, and are its layers the usual ones?"""
    if "FOLDS" not in vars(type(model)):
        return False
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    convs = [model.get_submodule(name) for name in _pairs(model).values()]
    usual = len(usual_norms(model)) == len(norms)
    return usual and all(type(c) is nn.Conv2d and c.bias is None for c in convs)


def usual_norms(model: nn.Module) -> dict[str, Any]:
    """The BatchNorms that are an affine map in eval mode, by name."""
    kinds = (nn.BatchNorm2d, SharedBatchNorm2d)  # in eval mode the same
    found = {name: m for name, m in model.named_modules() if type(m) in kinds}
    return {n: m for n, m in found.items() if m.affine and m.track_running_stats and unhooked(m)}


def unhooked(layer: nn.Module) -> bool:
    """A hook may compute weights (weight_norm) or change outputs, which folding would lose."""
    return not any(getattr(layer, hooks) for hooks in _HOOKS)


def _pairs(model: nn.Module) -> dict[str, str]:
    """The convolution before a BatchNorm, by the name of the BatchNorm."""
    pairs = {}
    for prefix, module in model.named_modules():
        for conv, norm in vars(type(module)).get("FOLDS", ()):
            with suppress(AttributeError):  # a block whose shortcut is the identity
                name = f"{prefix}.{conv}".lstrip(".")
                model.get_submodule(name)
                pairs[f"{prefix}.{norm}".lstrip(".")] = name
    return pairs


class Affine(nn.Module):
    """A BatchNorm in eval mode that follows no convolution."""

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty_like(like).view(-1, 1, 1), requires_grad=False)
        self.bias = nn.Parameter(torch.empty_like(like).view(-1, 1, 1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.bias, x, self.weight)


class ChannelsLast(torch.autograd.Function):
    """Changes the layout inside only: input and gradient keep the usual one, which attacks expect."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.contiguous()


class FoldedCopy:
    """The folded network, and the layers of the model that its tensors come from.

    It holds the model's layers but not the model, so that the cache does not keep the model alive.
    `pairs`: the convolution before a BatchNorm, by the name of the BatchNorm. `last`: in channels_last.
    """

    def __init__(self, model: nn.Module, pairs: Mapping[str, str], last: bool | None = None) -> None:
        self.layers, self.place = list(model.modules())[1:], _place(model)
        network = copy.deepcopy(model).requires_grad_(False).eval()
        norms = usual_norms(model)
        ordered = sorted(norms, key=lambda name: name not in pairs)  # those with a pair first
        self.norms: list[Any] = [norms[name] for name in ordered]
        self.convs: list[Any] = [model.get_submodule(pairs[n]) for n in ordered if n in pairs]
        self.targets: list[Any] = []  # for each norm, the layer of the copy that replaces it
        for name in ordered:
            shift = torch.empty_like(norms[name].running_mean)
            layer: Any = network.get_submodule(pairs[name]) if name in pairs else Affine(shift)
            if name in pairs:
                layer.bias = nn.Parameter(shift, requires_grad=False)
            network.set_submodule(name, nn.Identity() if name in pairs else layer)
            self.targets.append(layer)
        self.biased = [number for number, conv in enumerate(self.convs) if conv.bias is not None]
        done = {*self.norms, *self.convs}
        rest = [(n, m) for n, m in model.named_modules() if n and m not in done]
        self.others = [(module, network.get_submodule(name)) for name, module in rest]
        # Hooks that count the model's passes count those of the copy too.
        network._forward_hooks = model._forward_hooks
        if last is None:
            last = self.place[0].type == "cpu" or _channels_last(model)
        placed(network, self.place[0], last)
        if last:
            network.register_forward_pre_hook(lambda _, inputs: ChannelsLast.apply(*inputs))
        if model._compiled_call_impl is not None:
            network.compile()  # a copy of a compiled network is a plain one
        self.network = network

    def fits(self, model: nn.Module) -> bool:
        """Has the model still the same layers, device and precision?"""
        return self.place == _place(model) and self.layers == list(model.modules())[1:]

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the copy's tensors from the model's."""
        norms, targets, pairs = self.norms, self.targets, len(self.convs)
        scales = torch._foreach_add([n.running_var for n in norms], [n.eps for n in norms])
        torch._foreach_sqrt_(scales)
        scales = torch._foreach_div([n.weight for n in norms], scales)
        shifts = torch._foreach_mul([n.running_mean for n in norms], scales)
        shifts = torch._foreach_sub([n.bias for n in norms], shifts)
        for number in self.biased:
            shifts[number].addcmul_(self.convs[number].bias, scales[number])
        wide = [scale.view(-1, 1, 1) for scale in scales]
        kernels = [target.weight for target in targets]
        biases = [target.bias for target in targets]
        torch._foreach_copy_(biases, [s.view_as(b) for s, b in zip(shifts, biases, strict=True)])
        torch._foreach_copy_(kernels, [c.weight for c in self.convs] + wide[pairs:])
        if pairs:
            torch._foreach_mul_(kernels[:pairs], [scale[..., None] for scale in wide[:pairs]])
        mine = [t for _, layer in self.others for t in _tensors(layer)]
        if mine:
            torch._foreach_copy_(mine, [t for layer, _ in self.others for t in _tensors(layer)])


def _tensors(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]


def _channels_last(model: nn.Module) -> bool:
    """Was it placed so? In kernels of one pixel, or for one channel, the layouts are the same."""
    kernels = [layer.weight for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    return any(not kernel.is_contiguous() for kernel in kernels)


def _place(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    first = next(model.parameters())
    return first.device, first.dtype


_copies: WeakKeyDictionary[nn.Module, FoldedCopy] = WeakKeyDictionary()
