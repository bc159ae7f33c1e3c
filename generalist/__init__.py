"""Generalist, and the registry of every method that a grid may name."""

from baselines import METHODS as BASELINES
from generalist.generalist import Generalist
from harness.training.averaged import Averaged

METHODS: dict[str, type] = {**BASELINES, "averaged": Averaged, "generalist": Generalist}
