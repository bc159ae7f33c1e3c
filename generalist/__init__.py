"""Generalist, and the registry of every method that a grid may name."""

from baselines import METHODS as BASELINES
from generalist.generalist import Generalist

METHODS: dict[str, type] = {**BASELINES, "generalist": Generalist}
