"""A network that learns together with its copies in other processes (data parallel).

The copies end every step with the weights that one process would have: BatchNorm takes its statistics
over the whole batch, and gradients are those of the batch's mean loss. A learner's backward pass sums
its gradients in buckets, at its end; other code, one by one. Neither overlaps with the backward pass.
"""

from typing import Any

import torch
from torch import Tensor, nn

from harness.core.errors import expected
from harness.machine import distributed


def synchronize(model: nn.Module) -> nn.Module:
    """Make a network sum its statistics and gradients over all processes, in place."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm2d
        elif isinstance(module, nn.modules.batchnorm._NormBase):
            raise expected("BatchNorm2d in a network", type(module).__name__, "train it alone")
    for parameter in model.parameters():
        parameter.register_hook(distributed.summed_gradient)
    model.register_forward_hook(_weigh)
    return model


def _weigh(module: nn.Module, inputs: Any, logits: Tensor) -> None:
    """Scale the gradient by the slice's share of the batch; an attack's gradients stay as they are."""
    if logits.requires_grad and next(module.parameters()).requires_grad:
        logits.register_hook(lambda gradient: gradient * distributed.share())


class _Sum(torch.autograd.Function):
    """The sum over the processes; it enters the losses of all, so its gradient is a sum too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return distributed.summed(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return distributed.summed(gradient)


class SharedBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm over the whole batch; in eval mode, and alone, the usual one with the same tensors."""

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and distributed.is_together()):
            return super().forward(x)
        wide, values, dims = (1, -1, 1, 1), x.to(self.weight.dtype), (0, 2, 3)
        count = values.new_tensor([x.numel() / x.shape[1]])
        sums = _Sum.apply(torch.cat([values.sum(dims), count]))
        number = sums[-1].detach()
        centre = sums[:-1] / number
        values = values - centre.view(wide)
        variance = _Sum.apply(values.square().sum(dims)) / number
        scale = (variance + self.eps).rsqrt() * self.weight
        self._update_running(centre.detach(), variance.detach() * number / (number - 1))
        return (values * scale.view(wide) + self.bias.view(wide)).to(x.dtype)

    def _update_running(self, centre: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        with torch.no_grad():
            for own, new in ((self.running_mean, centre), (self.running_var, variance)):
                assert own is not None
                own.copy_((1 - momentum) * own + momentum * new)
