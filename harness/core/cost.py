"""What a computation took. Torch-free."""

from __future__ import annotations

import resource
import time
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Cost:
    """On the clock, and of CPU time: this process's and of those that it started and saw end."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @classmethod
    def now(cls) -> Cost:
        """A reading of the clocks; only the difference of two says anything."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.monotonic(), sum(usage.ru_utime + usage.ru_stime for usage in used))

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.seconds - other.seconds, self.cpu_seconds - other.cpu_seconds)

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in asdict(self).items()}
