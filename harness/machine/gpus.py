"""Which GPUs a job may use: distinct ones for jobs side by side, where no batch system says so.

Snakemake counts devices (`--resources gpu=4`) but names none. Here a job locks as many as its rule asks
for, a file each, and sees only these in CUDA_VISIBLE_DEVICES. The kernel drops a lock with the last
process that holds it, however that one ended. A job that finds too few of them free waits.

The devices are those that CUDA_VISIBLE_DEVICES names when Snakemake starts, or else all of the
machine's; without any, nothing happens. Inside an allocation of Slurm's they are the allocation's:
where it is just what the job asks for, there is nothing to choose. Only jobs of one user on one machine
see each other's locks, and a device has to go by the same name for both.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import time
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from harness.core.errors import expected

VISIBLE = "CUDA_VISIBLE_DEVICES"
ALLOCATION = "SLURM_JOB_ID"
_SECONDS = 0.2  # between two looks at devices that are all taken


def devices(environment: Mapping[str, str], machine: Path = Path("/dev")) -> list[str]:
    """By number or name. CUDA reads its list up to the first entry that it does not understand: -1."""
    if VISIBLE in environment:
        named = [name.strip() for name in environment[VISIBLE].split(",")]
        return list(takewhile(lambda name: name and name[0] != "-", named))
    there = [path for path in machine.glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()]
    return [str(number) for number in range(len(there))]


def claim(wanted: int) -> list[int]:
    """Locks on as many devices, or on all if there are fewer; this process sees them and no others."""
    there, allocation = devices(os.environ), os.environ.get(ALLOCATION, "")
    wanted = min(wanted, len(there))
    if wanted == 0 or (allocation and wanted == len(there)):
        return []
    folder, waiting = _folder(), False
    while True:
        locks: dict[str, int] = {}
        for device in there:
            lock = _lock(folder / f"{allocation}{device.replace('/', '_')}")
            if lock is not None:
                locks[device] = lock
            if len(locks) == wanted:
                os.environ[VISIBLE] = ",".join(locks)
                return list(locks.values())
        for lock in locks.values():  # whoever kept some could wait for ever for another's
            os.close(lock)
        if not waiting:
            print(f"waiting for {wanted} of the GPUs {', '.join(there)}", file=sys.stderr)
            waiting = True
        time.sleep(_SECONDS * random.uniform(0.5, 1.5))


def _lock(path: Path) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _folder() -> Path:
    """The same for all sessions of a user, whatever TMPDIR says in one of them."""
    folder = Path(f"/tmp/generalist-gpus-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise expected(f"a folder of your own at {folder}", "somebody else's", "have it removed")
    return folder
