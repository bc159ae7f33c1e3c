"""What mixtures of a run's networks are worth; only runs that ask for it measure this (`Watch`).

`lines`: accuracy along the straight line between each two learners, with their BatchNorm statistics on
it too, since a redistribution averages them like weights. Where it sags, weights cannot be mixed.

`losses`: for a convex loss the loss of sum_a gamma_a theta_a is at most sum_a gamma_a loss(theta_a),
the step on which Theorem 1 of CVPR 2023 rests. Measured are both sides, and the loss of theta_g, the
moving average of that mixture. A robust loss is that under each network's own attack.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from itertools import combinations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.core.paths import LINE, RISK
from harness.training.weights import mix_into

Tested = tuple[Tensor, Tensor, Tensor]  # logits on natural and on own adversarial images; labels
KINDS = ("natural", "robust")


def lines(
    networks: Mapping[str, nn.Module], points: int, tested: Callable[[nn.Module], Tested]
) -> dict[str, float]:
    """Accuracies by `line_<kind>:<one>><other>:<share of the other>`."""
    found = {}
    for one, other in combinations(networks, 2):
        for point in range(points):
            share = point / (points - 1)
            mixture = _mixed([networks[one], networks[other]], [1 - share, share])
            *both, y = tested(mixture)
            for kind, answers in zip(KINDS, both, strict=True):
                right = float((answers.argmax(dim=1) == y).float().mean())
                found[f"{LINE}{kind}:{one}>{other}:{share:.3f}"] = right
    return found


def losses(
    networks: Mapping[str, nn.Module],
    theta_g: nn.Module,
    shares: Mapping[str, float],
    tested: Callable[[nn.Module], Tested],
) -> dict[str, float]:
    """By `risk_<kind>:<network>`; `learners` is their weighted mean, `mixture` the loss of theirs."""
    weights = [shares[name] for name in networks]
    mixture = _mixed(list(networks.values()), weights)
    found = {}
    for name, network in {**networks, "mixture": mixture, "global": theta_g}.items():
        *both, y = tested(network)
        for kind, answers in zip(KINDS, both, strict=True):
            found[f"{RISK}{kind}:{name}"] = float(cross_entropy(answers, y))
    for kind in KINDS:
        each = [found[f"{RISK}{kind}:{name}"] for name in networks]
        total = sum(weight * own for weight, own in zip(weights, each, strict=True) if weight)
        found[f"{RISK}{kind}:learners"] = total
    return found


def _mixed(networks: list[nn.Module], weights: list[float]) -> nn.Module:
    mixture = copy.deepcopy(networks[0])
    mix_into(mixture, networks, weights, decay=0.0)
    return mixture
