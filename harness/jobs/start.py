"""Start a command soon: `generalist-bench start train --run ID` is `generalist-bench train --run ID`.

Below a Snakemake that keeps a zygote (zygote.py) the command runs in a process forked from it,
which has torch already; this one passes on its words, folder, environment and open files, waits, and
ends with the same exit code. SIGTERM is passed on: the job leaves as it would by itself, and this one
with it. If this one is killed, so is the other. Where no zygote answers (another machine, control group
or Slurm job, a plain command line) the command runs right here, with the same result.
`generalist-bench start --gpus 1 train ...` first takes a GPU for the command alone, if there are any
(harness/machine/gpus.py).
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from harness.core import process
from harness.core.commands import run
from harness.core.errors import expected
from harness.machine.gpus import ALLOCATION, reserve

ADDRESS = "GENERALIST_ZYGOTE"
STARTED = b"s"
STOP = b"t"


def control_group() -> str:
    """A batch system's limits and devices belong to this: a job must not slip out of it."""
    group = Path("/proc/self/cgroup")
    allocation = os.environ.get(ALLOCATION, "")  # not every Slurm makes groups
    return allocation + (group.read_text() if group.exists() else "")


def started(line: socket.socket, address: str, locks: list[int]) -> bool:
    request = {"words": sys.argv[1:], "folder": os.getcwd(), "control_group": control_group()}
    content = json.dumps({**request, "environment": dict(os.environ)}).encode()
    try:
        line.connect(address)
        socket.send_fds(line, [len(content).to_bytes(8, "big")], [0, 1, 2, *locks])
        line.sendall(content)
        return line.recv(1) == STARTED
    except OSError:
        return False


def main() -> None:
    locks: list[int] = []
    if sys.argv[1:2] == ["--gpus"]:
        number = "".join(sys.argv[2:3])
        if not number.isdecimal():
            raise expected("a number behind --gpus", repr(number), "give one, such as --gpus 1")
        locks = reserve(int(number))
        del sys.argv[1:3]
    if not sys.argv[1:]:
        raise expected("a command to start", "none", "name it, with its words behind it")
    passed_on = False
    with socket.socket(socket.AF_UNIX) as line:

        def pass_on(*_: object) -> None:
            nonlocal passed_on
            passed_on = True
            with suppress(OSError):  # it has just ended
                line.sendall(STOP)

        if started(line, os.environ.get(ADDRESS, ""), locks):
            signal.signal(signal.SIGTERM, pass_on)
            with suppress(ConnectionResetError):  # it ended without having read our word
                if code := line.recv(1):
                    sys.exit(code[0])
            if passed_on:  # it came before the job could listen
                raise process.Stopped
            remedy = "see that the memory suffices and start again"
            error = expected(f"{sys.argv[1]} to end by itself", "that it was killed", remedy)
            sys.exit(f"error: {error}")
    del sys.argv[0]
    run(sys.argv[0])
