"""Reserves GPUs for a job, so that jobs on one machine use different ones.

Snakemake counts devices (`--resources gpu=4`) but does not choose them. Here a job locks one file per
device and sees only these devices in CUDA_VISIBLE_DEVICES. The kernel drops a lock with the last
process that holds it, however that one ended. A job waits while too few devices are free.

The devices are those in CUDA_VISIBLE_DEVICES when Snakemake starts, or all of the machine; without any,
nothing happens. In a Slurm allocation they are the allocation's, and if the job needs all of them there
is nothing to choose. Only jobs of one user on one machine see each other's locks, and only if they use
the same name for a device.
"""

import fcntl
import os
import random
import stat
import sys
import time
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

from harness.core.errors import expected

VISIBLE = "CUDA_VISIBLE_DEVICES"
ALLOCATION = "SLURM_JOB_ID"
_SECONDS = 0.2  # between two tries while too few devices are free


def devices(environment: Mapping[str, str], machine: Path = Path("/dev")) -> list[str]:
    """The visible devices, by number or name. CUDA stops reading its list at an invalid entry: -1."""
    if VISIBLE in environment:
        named = [name.strip() for name in environment[VISIBLE].split(",")]
        return list(takewhile(lambda name: name and name[0] != "-", named))
    there = [path for path in machine.glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()]
    return [str(number) for number in range(len(there))]


def reserve(wanted: int) -> list[int]:
    """Lock `wanted` devices (all if there are fewer) and hide the others; returns the open locks."""
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
        for lock in locks.values():  # two jobs that kept some could wait for each other for ever
            os.close(lock)
        if not waiting:
            print(f"waiting for {wanted} of the GPUs {', '.join(there)}", file=sys.stderr)
            waiting = True
        time.sleep(_SECONDS * random.uniform(0.5, 1.5))


def _folder() -> Path:
    """The same for all sessions of a user, who alone can write there: not /tmp, nor TMPDIR."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or cache) / "generalist-gpus"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        found = "one of somebody else, or where others may write"
        raise expected(f"a folder of your own at {folder}", found, "have it removed")
    return folder


def _lock(path: Path) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file
