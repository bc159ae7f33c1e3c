"""Where to compute, and with how many threads."""

from __future__ import annotations

import torch

from harness.errors import expected

DEVICES = ("auto", "cuda", "mps", "cpu")


def pick_device(wanted: str = "auto") -> torch.device:
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        wanted = next(name for name, there in available.items() if there)
    if not available.get(wanted.partition(":")[0], False):
        there = ", ".join(name for name, yes in available.items() if yes)
        raise expected(f"a device of this machine ({there})", wanted, "use --device auto")
    return torch.device(wanted)


def limit_threads(threads: int) -> None:
    """OMP_NUM_THREADS is Snakemake's word for it; torch must be told as well."""
    torch.set_num_threads(threads)
