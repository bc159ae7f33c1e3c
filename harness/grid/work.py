"""The passes that an evaluation makes at most. Torch-free."""

from collections import defaultdict
from functools import cache

from harness.attacks.work import Work
from harness.data.sets import SETS
from harness.grid.columns import Probe


@cache
def of_evaluation(probes: tuple[Probe, ...]) -> Work:
    """The work of a model's probes; those that share a run cost as much as the longest."""
    families: dict[str, Work] = defaultdict(Work)
    for probe in probes:
        work = Work(forward=1)
        if probe.attack:
            work += Work(forward=len(probe.attack.stages))
            work += probe.attack.work(SETS[probe.dataset].classes)
        family = probe.id if probe.heat else probe.family
        families[family] = max(families[family], work * probe.examples, key=lambda w: w.all_forward)
    return sum(families.values(), Work())
