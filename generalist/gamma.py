"""The mixing ratios gamma over time: each learner's weight in the global learner."""

from __future__ import annotations

from harness.core.errors import expected

BREAKPOINTS = 4  # at 0, 1/3, 2/3 and 1 of the run: epochs 0, 40, 80, 120 of the papers


def check_gamma(gamma: tuple[float, ...]) -> None:
    if len(gamma) != BREAKPOINTS:
        raise expected(
            f"{BREAKPOINTS} values of gamma (at 0, 1/3, 2/3 and 1 of the epochs)",
            f"{len(gamma)} values {list(gamma)}",
            "write gamma: [1, 1, 1, 0]",
        )
    if min(gamma) < 0 or max(gamma) > 1:
        raise expected("gamma within [0, 1]", list(gamma), "write gamma: [1, 1, 1, 0]")


def check_shares(shares: tuple[float, ...], learners: int) -> None:
    if len(shares) != learners - 1 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise expected(
            f"{learners - 1} shares >= 0 that sum to 1, one for each learner after the first",
            list(shares),
            "write shares: [0.5, 0.5] for three learners",
        )


def gamma_at(gamma: tuple[float, ...], progress: float) -> float:
    """gamma_1, piecewise linear between its breakpoints."""
    position = progress * (len(gamma) - 1)
    left = min(int(position), len(gamma) - 2)
    return gamma[left] + (gamma[left + 1] - gamma[left]) * (position - left)


def weights_at(
    gamma: tuple[float, ...], shares: tuple[float, ...], progress: float
) -> tuple[float, ...]:
    """gamma_1 for the first learner; the others share the rest (T: gamma_2 = b (1 - gamma_1))."""
    first = gamma_at(gamma, progress)
    return (first, *((1 - first) * share for share in shares))
