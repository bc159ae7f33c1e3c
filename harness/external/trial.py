"""One trial before any attack: two images forward and back, then one sentence for all that is odd.

What makes an evaluation impossible is an error. What changes its meaning is a sentence of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from harness.attacks.losses import cross_entropy
from harness.core.errors import UserError, expected
from harness.core.statistics import wilson
from harness.external.loading import told
from harness.machine.device import enough_memory

IMAGES = 100  # on which the accuracy is compared with guessing
_SIZES = (1, 4, 8, 10, 16, 32, 50, 64, 100, 128, 200, 250, 256, 500, 512)
_SIDES = (28, 32, 64, 224)


class Answering(nn.Module):
    """The logits, in float32, of a network that returns other things too, or is TorchScript."""

    def __init__(self, model: nn.Module, pick: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, x: Tensor) -> Tensor:
        return self.pick(self.model(x)).float()


def tried(model: nn.Module, x: Tensor, y: Tensor, classes: int) -> tuple[nn.Module, list[str]]:
    """The network as it will be attacked, in eval mode, and a sentence for each thing to know."""
    said: list[str] = []
    kinds = {t.dtype for t in model.parameters() if t.is_floating_point()} - {torch.float32}
    if kinds:
        names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        said.append(f"its parameters are {names}: cast to float32, in which everything is measured")
        model = model.float()
    model = model.eval()
    out = _outputs(model, x[:2])
    pick, which = _picked(out, classes)
    if which:
        said.append(f"it returns {which}")
    if pick(out).dtype != torch.float32:
        said.append(f"its outputs are {pick(out).dtype}: cast to float32 before they are compared")
    script = isinstance(model, torch.jit.ScriptModule)  # which takes no hooks: passes are counted so
    if which or script or pick(out).dtype != torch.float32:
        model = Answering(model, pick).eval()
    _check_logits(pick(out), classes)
    said += _gradient(model, x[:2], y[:2]) + _answers(model, x[:IMAGES], y[:IMAGES], classes)
    return model, said


def _outputs(model: nn.Module, x: Tensor) -> Any:
    """What it returns for two images, or an error that says which images it does take."""
    try:
        with torch.no_grad(), enough_memory("a trial on two images", "use a device with more"):
            return model(x)
    except UserError:
        raise
    except Exception as error:  # whatever somebody else's network raises
        reason = told(error)
    count, channels, height, width = x.shape
    shape, remedy = f"{channels}x{height}x{width}", "mend its forward"
    works = _works(model, x)
    other = [c for c in (1, 3) if c != channels and works(count, c, height, width)]
    sides = [s for s in _SIDES if s != height and works(count, channels, s, s)]
    sizes = [n for n in _SIZES if works(n, channels, height, width)]
    if other:
        reason = f"one for {other[0]} channels"
        remedy = "choose its data set with --data, or convert the images in its forward"
    elif sizes:
        reason = f"one that takes {' or '.join(map(str, sizes))} at once and nothing else"
        remedy = "write x.flatten(1) where its forward says x.view(N, -1)"
        raise expected("a network for any number of images", reason, remedy)
    elif sides:
        reason = f"one for {channels}x{sides[0]}x{sides[0]}"
        remedy = "choose its data set with --data, or resize the images in its forward"
    raise expected(f"a network for images of {shape}", reason, remedy)


def _works(model: nn.Module, x: Tensor) -> Callable[..., bool]:
    def works(*shape: int) -> bool:
        try:
            with torch.no_grad():
                model(x.new_zeros(shape))
        except Exception:
            return False
        return True

    return works


def _picked(out: Any, classes: int) -> tuple[Callable[[Any], Tensor], str]:
    """Where the logits are, and in which words."""
    if isinstance(out, Tensor):
        return lambda found: found, ""
    parts: Mapping[Any, Any]
    if isinstance(out, Mapping):
        parts, kind = out, "a dict"
    elif isinstance(out, tuple | list):
        parts, kind = dict(enumerate(out)), f"a {type(out).__name__} of {len(out)}"
    else:
        raise expected("a tensor of logits", f"a {type(out).__name__}", "return the logits alone")
    fitting = [name for name, t in parts.items() if isinstance(t, Tensor) and t.shape == (2, classes)]
    if "logits" in fitting:
        fitting = ["logits"]
    shapes = {
        n: tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for n, t in parts.items()
    }
    shown = ", ".join(f"{name!r}: {shape}" for name, shape in shapes.items())
    if len(fitting) != 1:
        what = f"one tensor of {classes} logits per image"
        raise expected(what, f"{kind} with {shown}", "return the logits alone")
    name = fitting[0]
    return lambda found: found[name], f"{kind} ({shown}): the logits are taken from {name!r}"


def _check_logits(logits: Tensor, classes: int) -> None:
    if logits.shape != (2, classes):
        found, remedy = f"an output of {tuple(logits.shape)} for 2 images", "return the logits alone"
        if logits.dim() == 2 and len(logits) == 2:
            found, remedy = f"{logits.shape[1]}", "choose its data set with --data, or change its head"
            raise expected(f"a network for {classes} classes", found, remedy)
        raise expected(f"logits of the shape (2, {classes})", found, remedy)
    if not torch.isfinite(logits).all():
        found = f"{int((~torch.isfinite(logits)).sum())} of {logits.numel()} that are NaN or infinite"
        remedy = "look for a division by 0 or a broken weights file"
        raise expected("finite logits for the first two images", found, remedy)


def _gradient(model: nn.Module, x: Tensor, y: Tensor) -> list[str]:
    x = x.detach().requires_grad_(True)
    remedy = "take no_grad, detach, numpy and argmax out of its forward: attacks need the gradient"
    try:
        with torch.enable_grad():
            loss = cross_entropy(model(x), y).sum()
            (gradient,) = torch.autograd.grad(loss, x, allow_unused=True)
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise expected("a backward pass to the image", told(error), remedy) from None
        gradient = None
    if gradient is None:
        raise expected("logits with a gradient to the image", "none", remedy)
    if (gradient == 0).all():
        return ["its gradient to the image is 0 everywhere: no attack but Square can move"]
    return []


@torch.no_grad()
def _answers(model: nn.Module, x: Tensor, y: Tensor, classes: int) -> list[str]:
    said, one, other = [], model(x), model(x)
    difference = float((one - other).abs().max())
    if difference > 1e-5:
        said.append(
            f"it answers at random (two passes differ by {difference:.2g}): AutoAttack's version for "
            f"such networks is --attacks rand"
        )
    if bool((one >= -1e-5).all() & ((one.sum(dim=1) - 1).abs() < 1e-4).all()):
        said.append("its outputs look like probabilities: return the logits, or attacks may be blind")
    right = int((one.argmax(dim=1) == y).sum())
    if wilson(right, len(y))[0] <= 1 / classes:
        said.append(
            f"it is right on {right} of {len(y)} images, no more than guessing: were its weights "
            f"loaded (--weights), and does it take images in [0,1]?"
        )
    return said


def check_type(model: Any) -> None:
    """What is no network, and what to give instead."""
    if isinstance(model, nn.Module):
        return
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise expected("a network", f"the class {model.__name__}", "call it: Net()")
    if isinstance(model, Mapping):
        raise expected("a network", "a state_dict", "load it into a network first")
    raise _no_network(model)


def _no_network(model: Any) -> UserError:
    remedy = "wrap it in a torch.nn.Module, or give its address as text"
    return expected("a torch.nn.Module", type(model).__name__, remedy)
