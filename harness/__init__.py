"""The shared apparatus: identity, data, networks, attacks, training, evaluation, reports.

Knows no method by name; `baselines` and `generalist` build on it, never the other way round. From
Python: `from harness import benchmark` (harness/external/benchmark.py).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.external.benchmark import benchmark as benchmark


def __getattr__(name: str) -> Any:
    """torch is imported when `benchmark` is asked for, not by `import harness`."""
    if name == "benchmark":
        return import_module("harness.external.benchmark").benchmark
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
