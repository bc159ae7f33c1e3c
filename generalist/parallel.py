"""Generalist's learners in parallel: one process each, the same weights as in one process.

The training process keeps the first learner and theta_g; every other learner is in its own process. A
step sends it the batch, waits for its loss, and receives its weights through torch.distributed (nccl if
every learner has its own GPU, gloo otherwise). theta_g is then mixed by the code of the serial
training, in the same order: no bit differs, and checkpoints of one continue in the other. Weights
are sent after every step: that is cheap beside an attack of ten passes (benchmarks/parallel.py),
while partial sums that are sent rarely would round differently.

Batches, losses, errors and checkpoints go through a pipe. A process whose parent is gone ends. One that
does not answer for GENERALIST_PATIENCE seconds (default: an hour) ends the training, whose last
checkpoint stays. Slurm sends SIGTERM to all of them; only the training process acts on it, since it
needs the others' state for its checkpoint.

Networks that draw from torch's global generator (dropout) draw other numbers than in one process.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

from generalist.generalist import GeneralistTraining, overwrite
from harness.core.errors import UserError, expected
from harness.machine.device import Arithmetic, autocast, set_up, torch
from harness.training.contracts import Batch, Clock, Lab
from harness.training.learner import Learner
from harness.training.weights import tensors

HOST = "127.0.0.1"
PATIENCE = "GENERALIST_PATIENCE"


def patience() -> int:
    """Seconds to wait for a learner: far more than a step with all its attacks takes."""
    text = os.environ.get(PATIENCE, "3600")
    if not text.isdecimal() or int(text) < 1:
        raise expected(f"whole seconds in {PATIENCE}", repr(text), "write 3600")
    return int(text)


class ParallelTraining(GeneralistTraining):
    """The first learner is in this process, each other one behind a `Remote`."""

    def _start(self, lab: Lab) -> list[Any]:
        from torch.distributed import TCPStore

        first, *others = super()._start(lab)
        size, store = 1 + len(others), TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        lines = Lines(0, size, lab.device)
        what = self.generalist.overwrites
        remotes = [
            Remote(learner, lines, Lines(rank, size, lab.device), store.port, lab.arithmetic, what)
            for rank, learner in enumerate(others, 1)
        ]
        for remote in remotes:
            remote.answer()  # it is ready to connect
        lines.connect(store)
        return [first, *remotes]

    def _losses(self, batch: Batch, clock: Clock, rates: list[float]) -> list[float]:
        first, *remotes = self.learners
        for remote, lr in zip(remotes, rates[1:], strict=True):
            remote.ask("step", batch, clock, lr)
        loss = first.step(batch, clock, rates[0])["loss"]
        return [loss, *[remote.stepped() for remote in remotes]]

    def _redistribute(self) -> None:
        first, *remotes = self.learners
        overwrite(first, self.theta_g, self.generalist.overwrites)
        for remote in remotes:
            remote.overwrite(self.theta_g)


class Lines:
    """Sends weights between processes; a training has its own process group, so several can coexist."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size = rank, size
        self.nccl = device.type == "cuda" and torch.cuda.device_count() >= size
        self.device = torch.device("cuda", rank) if self.nccl else device

    def connect(self, store: torch.distributed.Store) -> None:
        from torch import distributed

        kind: Any = distributed.ProcessGroupNCCL if self.nccl else distributed.ProcessGroupGloo
        options = kind.Options() if self.nccl else kind._Options()
        if not self.nccl:  # by loopback: this machine's name may resolve to a wrong address
            options._devices = [kind.create_device(hostname=HOST)]
        options._timeout = timedelta(seconds=patience())
        self.group = kind(store, self.rank, self.size, options)

    def send(self, model: torch.nn.Module, rank: int) -> None:
        flat = torch.cat([tensor.flatten() for tensor in tensors(model)])
        self.group.send([flat if self.nccl else flat.cpu()], rank, 0).wait()

    def receive(self, model: torch.nn.Module, rank: int) -> None:
        own = tensors(model)
        sizes = [tensor.numel() for tensor in own]
        flat = torch.empty(sum(sizes), device=self.device if self.nccl else "cpu")
        self.group.recv([flat], rank, 0).wait()
        flats = flat.to(own[0].device).split(sizes)
        shaped = [flat.view(tensor.shape) for flat, tensor in zip(flats, own, strict=True)]
        torch._foreach_copy_(own, shaped)


class Remote:
    """A learner in another process, as the training process uses it."""

    def __init__(
        self,
        learner: Learner,
        lines: Lines,
        theirs: Lines,
        port: int,
        arithmetic: Arithmetic,
        overwrites: str,
    ) -> None:
        self.slug, self.lines, self.rank = learner.single.slug, lines, theirs.rank
        self.seen = learner.deployed()  # its weights after the last step
        context = get_context("spawn")  # a forked process could not use CUDA
        self.pipe, other = context.Pipe()
        compiled = learner.model._compiled_call_impl is not None  # pickling would lose it
        arguments = (other, theirs, port, torch.get_num_threads(), arithmetic, compiled, overwrites)
        self.process = context.Process(target=run_learner, args=arguments, daemon=True)
        self.process.start()
        other.close()  # so that the end of the process closes the pipe
        limit_waiting(self.pipe, patience())
        # Before multiprocessing's exit handler, which would wait for a process that ignores SIGTERM.
        Finalize(self, stop, (self.process, self.pipe), exitpriority=1)
        self.send(learner)  # not an argument: `start` would wait for ever if the process hangs

    def ask(self, what: str, *about: Any) -> None:
        self.send((what, *about))

    def send(self, message: Any) -> None:
        try:
            self.pipe.send_bytes(packed(message))
        except BlockingIOError:
            raise self._silent() from None
        except OSError:
            raise self._gone() from None

    def answer(self) -> Any:
        try:
            answer = unpacked(self.pipe.recv_bytes(), self.lines.device)
        except BlockingIOError:
            raise self._silent() from None
        except (EOFError, OSError):
            raise self._gone() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _gone(self) -> UserError:
        self.process.join(1)
        return expected(
            f"the process of learner {self.slug} to go on",
            f"its end with exit code {self.process.exitcode}",
            "see that the memory suffices and start again (a run continues from its checkpoint)",
        )

    def _silent(self) -> UserError:
        return expected(
            f"an answer from the process of learner {self.slug}",
            f"none for {patience()} s",
            "see what holds it up (a stopped process, a disk that hangs) and start again (a run "
            f"continues from its last epoch), with a longer {PATIENCE} if a step takes that long",
        )

    def stepped(self) -> float:
        loss = self.answer()["loss"]
        with self._transfer():
            self.lines.receive(self.seen, self.rank)
        return loss

    def overwrite(self, theta_g: torch.nn.Module) -> None:
        self.ask("overwrite")
        with self._transfer():
            self.lines.send(theta_g, self.rank)

    @contextmanager
    def _transfer(self) -> Iterator[None]:
        """Turn weights that do not arrive into an error that says why."""
        try:
            yield
        except RuntimeError:
            self.process.join(1)
            raise (self._silent() if self.process.is_alive() else self._gone()) from None

    def deployed(self) -> torch.nn.Module:
        return self.seen

    def state_dict(self) -> dict[str, Any]:
        self.ask("state_dict")
        return self.answer()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ask("load_state_dict", state)
        # Weights may be measured before the next step sends them.
        self.seen.load_state_dict(state.get("averaged", state["model"]))
        self.answer()


def limit_waiting(pipe: Connection, seconds: int) -> None:
    """Make reads and writes at this end fail with EAGAIN instead of blocking for ever."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as line:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            line.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def stop(process: BaseProcess, pipe: Connection) -> None:
    """End a learner's process."""
    pipe.close()
    process.kill()  # it has nothing to lose, ignores SIGTERM, and may be suspended
    process.join()


def run_learner(
    pipe: Connection,
    lines: Lines,
    port: int,
    threads: int,
    arithmetic: Arithmetic,
    compiled: bool,
    overwrites: str,
) -> None:
    """What a learner's process runs: the training process's requests, until it is gone."""
    from torch.distributed import TCPStore

    for number in (signal.SIGINT, signal.SIGTERM):  # they reach the training process too
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    set_up(threads)
    if lines.nccl:
        torch.cuda.set_device(lines.device)
    own: Learner = unpacked(pipe.recv_bytes(), lines.device)
    stream, own.generator = own.generator.get_state(), torch.Generator(lines.device)
    own.generator.set_state(stream)
    if compiled:
        own.model.compile()
    pipe.send_bytes(packed("ready"))
    lines.connect(TCPStore(HOST, port))
    while True:
        try:
            message = pipe.recv_bytes()
        except EOFError:
            return  # the training is over
        what, *about = unpacked(message, lines.device)
        if what == "overwrite":
            lines.receive(own.model, 0)
            overwrite(own, own.model, overwrites)
            continue
        try:
            with arithmetic.applied(), autocast(lines.device, arithmetic.amp):
                answer = getattr(own, what)(*about)
        except Exception as error:
            known = isinstance(error, UserError)
            pipe.send_bytes(packed(error if known else RuntimeError(traceback.format_exc())))
            return
        pipe.send_bytes(packed(answer))
        if what == "step":
            lines.send(own.deployed(), 0)


def end_with_parent() -> None:
    """End this process when its parent ends: in the middle of an attack it would not notice."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def packed(message: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(message, buffer)
    return buffer.getvalue()


def unpacked(message: bytes, device: torch.device) -> Any:
    """What the other process packed, on this device; only our own messages are read.

    What was on the CPU stays there: the state of a random number generator works nowhere else.
    """

    def place(storage: Any, was: str) -> Any:
        return storage if was == "cpu" else storage.to(device=device)

    return torch.load(io.BytesIO(message), map_location=place, weights_only=False)
