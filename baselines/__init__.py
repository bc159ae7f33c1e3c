"""One paper per file. A baseline is an Objective, or a Method where it must own the update."""

from baselines.at import AT
from baselines.at_half import HalfHalf
from baselines.nt import NT
from baselines.trades import TRADES

METHODS: dict[str, type] = {
    "nt": NT,
    "at": AT,
    "at_half": HalfHalf,
    "trades": TRADES,
}
