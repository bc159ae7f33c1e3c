"""torch, imported on first use.

Planning and reporting build every method's dataclass but run none; `import torch` costs 1.7 s per
process. Modules that both sides import write `from harness.core.lazy import torch`. The
proxy is not put into sys.modules: matplotlib and scipy look there and would load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            value = getattr(importlib.import_module(self._name), attribute)
            setattr(self, attribute, value)  # the next look-up is a plain one
            return value

    torch = _Lazy("torch")
