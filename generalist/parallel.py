"""Generalist's learners side by side: one process each, the same weights as one after the other.

The training process keeps the first learner and theta_g; every other learner lives in a process of its
own. A step sends it the batch, waits for its loss, and receives its weights through torch.distributed
(nccl where every learner has a GPU of its own, gloo otherwise), so theta_g is mixed by the very code of
the serial training, in the same order: no bit differs, and checkpoints of one continue in the other.
Weights travel after every step: beside an attack of ten passes that is noise (benchmarks/parallel.py),
while partial sums that travel rarely would round differently.

Batches, losses, errors and checkpoints travel through a pipe; a process whose parent is gone ends, and
one that neither takes nor answers for GENERALIST_PATIENCE seconds (default: an hour) ends the training,
whose last checkpoint stays. On SIGTERM, which Slurm sends to all of them, only the training process
acts: it still needs the others' state for its checkpoint.

Networks that draw from torch's global generator (dropout) draw other numbers than in serial.
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
from harness.core.lazy import torch
from harness.machine.device import autocast, set_up
from harness.training.contracts import Batch, Clock, Lab
from harness.training.learner import Learner
from harness.training.weights import tensors

HOST = "127.0.0.1"
PATIENCE = "GENERALIST_PATIENCE"


def patience() -> int:
    """Seconds that a learner may be silent: far more than a step with all its attacks takes."""
    text = os.environ.get(PATIENCE, "3600")
    if not text.isdecimal() or int(text) < 1:
        raise expected(f"whole seconds in {PATIENCE}", repr(text), "write 3600")
    return int(text)


class ParallelTraining(GeneralistTraining):
    """The first learner here, each other one behind a `Remote`."""

    def _start(self, lab: Lab) -> list[Any]:
        from torch.distributed import TCPStore

        first, *others = super()._start(lab)
        size, store = 1 + len(others), TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        lines = Lines(0, size, lab.device)
        what = self.generalist.overwrites
        remotes = [
            Remote(learner, lines, Lines(rank, size, lab.device), store.port, lab.amp, what)
            for rank, learner in enumerate(others, 1)
        ]
        for remote in remotes:
            remote.answer()  # it stands: nobody will wait for it in vain
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
    """How weights travel: a process group of one training's own, as many may live in a process."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size = rank, size
        self.nccl = device.type == "cuda" and torch.cuda.device_count() >= size
        self.device = torch.device("cuda", rank) if self.nccl else device

    def connect(self, store: torch.distributed.Store) -> None:
        from torch import distributed

        kind: Any = distributed.ProcessGroupNCCL if self.nccl else distributed.ProcessGroupGloo
        options = kind.Options() if self.nccl else kind._Options()
        if not self.nccl:  # by the loopback: what this machine's name resolves to may mislead
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
        parts = flat.to(own[0].device).split(sizes)
        shaped = [part.view(tensor.shape) for part, tensor in zip(parts, own, strict=True)]
        torch._foreach_copy_(own, shaped)


class Remote:
    """A learner that lives in a process of its own, as the training process sees it."""

    def __init__(
        self, learner: Learner, lines: Lines, theirs: Lines, port: int, amp: bool, overwrites: str
    ) -> None:
        self.slug, self.lines, self.rank = learner.single.slug, lines, theirs.rank
        self.seen = learner.deployed()  # its weights, as of the last step
        context = get_context("spawn")  # a forked process could not use CUDA
        self.pipe, other = context.Pipe()
        compiled = learner.model._compiled_call_impl is not None  # pickling would lose it
        arguments = (other, theirs, port, torch.get_num_threads(), amp, compiled, overwrites)
        self.process = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        other.close()  # so that its end is noticed here
        limit_waiting(self.pipe, patience())
        # Before multiprocessing's own end, which would wait for what ignores its SIGTERM.
        Finalize(self, stop, (self.process, self.pipe), exitpriority=1)
        self.send(learner)  # not an argument: `start` would wait for its reader without end

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
        with self._travelling():
            self.lines.receive(self.seen, self.rank)
        return loss

    def overwrite(self, theta_g: torch.nn.Module) -> None:
        self.ask("overwrite")
        with self._travelling():
            self.lines.send(theta_g, self.rank)

    @contextmanager
    def _travelling(self) -> Iterator[None]:
        """Weights that do not arrive: their line breaks, or waits as long as the pipe does."""
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
        self.seen.load_state_dict(state.get("averaged", state["model"]))  # a report may come first
        self.answer()


def limit_waiting(pipe: Connection, seconds: int) -> None:
    """Reads and writes fail with EAGAIN rather than block for ever; the other end is not touched."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as line:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            line.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def stop(process: BaseProcess, pipe: Connection) -> None:
    pipe.close()
    process.kill()  # it holds nothing that could be lost, ignores SIGTERM, and may be stopped
    process.join()


def work(
    pipe: Connection,
    lines: Lines,
    port: int,
    threads: int,
    amp: bool,
    compiled: bool,
    overwrites: str,
) -> None:
    """The life of a learner's process: do what the training process asks, until it is gone."""
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
            with autocast(lines.device, amp):
                answer = getattr(own, what)(*about)
        except Exception as error:
            known = isinstance(error, UserError)
            pipe.send_bytes(packed(error if known else RuntimeError(traceback.format_exc())))
            return
        pipe.send_bytes(packed(answer))
        if what == "step":
            lines.send(own.deployed(), 0)


def end_with_parent() -> None:
    """A killed parent says no farewell, and a learner amid an attack would not notice for long."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def packed(message: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(message, buffer)
    return buffer.getvalue()


def unpacked(message: bytes, device: torch.device) -> Any:
    """What the other process packed, its tensors on this one's device; only our own are unpickled."""
    return torch.load(io.BytesIO(message), map_location=device, weights_only=False)
