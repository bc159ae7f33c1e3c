"""One paper per file. A baseline is an Objective, or a Method where it must own the update."""

from baselines.agr import AGR
from baselines.at import AT
from baselines.at_half import HalfHalf
from baselines.at_multi import MultiAT
from baselines.eat import EAT
from baselines.fast_at import FastAT
from baselines.fat import FAT
from baselines.iat import IAT
from baselines.imagenet_at import ImageNetAT
from baselines.msd import MSD
from baselines.nt import NT
from baselines.part import PART
from baselines.ramp import RAMP
from baselines.rmc import RMC
from baselines.rst import RST
from baselines.score import SCORE
from baselines.statistics import Statistics
from baselines.trades import TRADES

METHODS: dict[str, type] = {
    "nt": NT,
    "at": AT,
    "at_half": HalfHalf,
    "trades": TRADES,
    "fat": FAT,
    "iat": IAT,
    "rst": RST,
    "score": SCORE,
    "agr": AGR,
    "part": PART,
    "at_multi": MultiAT,
    "msd": MSD,
    "eat": EAT,
    "rmc": RMC,
    "ramp": RAMP,
    "fast_at": FastAT,
    "imagenet_at": ImageNetAT,
    "statistics": Statistics,
}
