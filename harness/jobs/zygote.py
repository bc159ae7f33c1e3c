"""A process that has imported torch and forks for each job of one Snakemake run.

Importing what a job needs costs 3 s of CPU, a fork milliseconds. `launch` opens the socket before the
zygote exists, so the first jobs wait for it rather than import for themselves; the zygote itself
imports nothing before there is a job. It and the jobs end with their Snakemake: its pipe closes.

Forks are safe here because the zygote computes nothing: one thread, CUDA untouched. Should an import
ever start a thread, the zygote ends, and every job runs by itself (harness/jobs/start.py). Linux only.
"""

import atexit
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from harness.core.commands import run
from harness.core.errors import expected, run_command
from harness.jobs.start import ADDRESS, STARTED, STOP, control_group

# The last ones are what torch's optimizers and AutoAttack import on first use.
IMPORTS = (
    "harness.jobs.train",
    "harness.training.train",
    "harness.jobs.evaluate",
    "harness.evaluation.evaluate",
    "torch._dynamo",
    "pyautoattack",
)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_LOCKS = 64  # at most, that a client may hand over: harness/machine/gpus.py
_launched: list[subprocess.Popen] = []  # their pipes stay open as long as this process lives


def launch() -> None:
    """Make a zygote for the jobs that this process starts."""
    if sys.platform != "linux":
        return
    try:
        address = Path(tempfile.mkdtemp(prefix="generalist-")) / "zygote"  # a folder of the user's own
    except OSError:  # no such place: every job runs by itself
        return
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(address))
        except OSError:  # a TMPDIR too long for a socket's name: every job runs by itself
            address.parent.rmdir()
            return
        listener.listen(1024)
        _launched.append(
            subprocess.Popen(
                [sys.executable, "-m", "harness", "zygote", str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,  # Ctrl-C is for the jobs
                env={**os.environ, **_ONE_THREAD},
            )
        )
    os.environ[ADDRESS] = str(address)


def serve(listener: socket.socket) -> None:
    imported = False
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the jobs: their clients do
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the jobs
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        if not imported:
            for name in IMPORTS:
                importlib.import_module(name)
            if len(os.listdir("/proc/self/task")) > 1:
                return  # no job has been started: there are none to end
            gc.freeze()  # so that the forks' pages stay shared
            imported = True
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            work(line)
        line.close()


def work(line: socket.socket) -> NoReturn:
    """One job, from the client's request to its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    length, files, _, _ = socket.recv_fds(line, 8, 3 + _LOCKS)  # the locks are held by being open
    try:
        request = json.loads(line.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
        if request["control_group"] != control_group():
            os._exit(0)
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = request["words"]
        line.sendall(STARTED)
    except (ValueError, OSError):  # the client was killed while it spoke, or is gone already
        os._exit(0)
    threading.Thread(target=end_with, args=[line], daemon=True).start()
    code = 1
    try:
        run_command(lambda: run(sys.argv[0]))
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    line.sendall(bytes([code]))
    os._exit(code)


def end_with(line: socket.socket) -> None:
    """A client that is asked to stop is a job that is; one that was killed, a job that was killed."""
    with suppress(ConnectionResetError):  # killed before it had read all that was said
        while line.recv(1) == STOP:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)  # type: ignore[arg-type]
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    if not "".join(sys.argv[1:]).isdecimal():
        raise expected("the number of a socket", repr(sys.argv[1:]), "let Snakemake start the zygote")
    with socket.socket(fileno=int(sys.argv[1])) as own:
        try:
            serve(own)
            # Jobs of a killed Snakemake would go on beside those of the one that is started next.
            os.killpg(0, signal.SIGTERM)  # a session of our own, and this process ignores it
        finally:
            shutil.rmtree(Path(own.getsockname()).parent, ignore_errors=True)
