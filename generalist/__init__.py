"""Generalist, and the registry of every method that a grid may name."""

from baselines import METHODS as BASELINES
from generalist.generalist import Generalist
from harness.training.averaged import Averaged
from harness.training.statistics import Statistics

METHODS: dict[str, type] = {
    **BASELINES,
    "averaged": Averaged,
    "statistics": Statistics,
    "generalist": Generalist,
}
