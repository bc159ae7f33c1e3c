"""Folding for networks that are not ours: torch.fx finds the pairs of layers, images test the copy.

A network without `FOLDS` (networks.py) is traced in eval mode. A BatchNorm is folded into the
convolution before it if nothing else uses that convolution's output, and if each of the two is called
once. Then the folded copy is compared with the network on some images: logits and input gradients. If
anything fails, the network is attacked as it is; what was done, and why, is kept with the records.
"""

import copy
import inspect
from collections import Counter

import torch
from torch import Tensor, fx, nn

from harness.machine.device import tf32
from harness.models.folding import FoldedCopy, foldable, frozen, unhooked, use, usual_norms

_TOLERANCE = 1e-4  # of the largest logit; of the gradient's length a hundred times that: ReLU has kinks
PLAIN = "attacked as it is"


@tf32(False)
def fold_unknown(model: nn.Module, x: Tensor) -> str | None:
    """Fold a network without `FOLDS` if images `x` see no difference; say in one line what was done.

    None for a network that folds itself.
    """
    if foldable(model):
        return None
    use(model, None)
    norms = usual_norms(model)
    if not norms:
        return f"{PLAIN}: it has no BatchNorm2d with running statistics"
    try:
        pairs, relus = _found(copy.deepcopy(model).eval())
    except Exception as error:  # fx cannot trace every network, and says so in many kinds of exception
        return f"{PLAIN}: torch.fx cannot trace it ({_line(error)})"
    failed = ""
    # Code that calls `view` on a map wants the usual layout; on a CPU the other one is faster.
    for last in dict.fromkeys([x.device.type == "cpu", False]):
        try:
            made = FoldedCopy(model, pairs, last)
            for name in relus:
                made.network.get_submodule(name).inplace = True  # type: ignore[assignment]
            made.refresh()
            off = _difference(model, made.network, x)
        except Exception as error:  # whatever the network's code raises when a layer is another one
            failed = _line(error)
            continue
        if off <= 1:
            use(model, made)
            layout = ", in channels_last" if last else ""
            return f"folded: {len(pairs)} of {len(norms)} BatchNorms into a convolution{layout}"
        failed = "its logits or gradients are others when it is folded"
    return f"{PLAIN}: {failed}"


def _found(model: nn.Module) -> tuple[dict[str, str], list[str]]:
    """The convolution before a BatchNorm, by the BatchNorm's name; the ReLUs that may work in place."""
    parameters = list(inspect.signature(model.forward).parameters.values())[1:]
    fixed = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    graph = fx.Tracer().trace(model, concrete_args=fixed or None)
    layers, norms = dict(model.named_modules()), usual_norms(model)
    calls = [node for node in graph.nodes if node.op == "call_module"]
    called = Counter(str(node.target) for node in calls)
    owners = Counter(id(p) for layer in layers.values() for p in layer.parameters(recurse=False))
    pairs, relus = {}, []
    for node in calls:
        name, before = str(node.target), node.args[0] if node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module":
            continue
        source = layers[str(before.target)]
        if called[name] > 1 or len(before.users) > 1 or not unhooked(source):
            continue
        convolution = type(source) is nn.Conv2d
        if type(layers[name]) is nn.ReLU:
            relus += [name] if convolution or str(before.target) in norms else []
            continue
        once = convolution and called[str(before.target)] == 1 == owners[id(source.weight)]
        if name in norms and once:
            pairs[name] = str(before.target)
    return pairs, relus


def _difference(model: nn.Module, folded: nn.Module, x: Tensor) -> float:
    """How far the copy is from the network, in tolerances; above 1 is too far, and so is NaN."""
    with frozen(model):
        own, slope = _seen(model, x)
    found, other = _seen(folded, x)
    logits = (own - found).abs().max() / own.abs().max().clamp_min(1)
    gradient = (slope - other).norm() / slope.norm().clamp_min(1e-12)
    worst = max(float(logits) / _TOLERANCE, float(gradient) / (100 * _TOLERANCE))
    return worst if bool(torch.isfinite(logits + gradient)) else float("inf")


def _seen(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        logits = model(x)
        (slope,) = torch.autograd.grad(logits.logsumexp(dim=1).sum(), x)
    return logits.detach(), slope


def _line(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 160 else f"{text[:157]}..."
