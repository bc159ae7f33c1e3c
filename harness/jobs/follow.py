"""What a person sees of a build: one line with jobs done, models trained, time left, what runs.

Snakemake's own lines go to its log file; `--verbose` and `--quiet` show them as ever, and so does a
dry run. A failed job is told in lines that stay, with the path and the end of its log. On a terminal
the line is drawn anew every second; in a pipe or under nohup it is written twice a minute. Torch-free.

Time left: what the bill expects of the jobs to come, at the speed of those that are done.
"""

import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from harness.core.files import one_line
from harness.core.process import clock

SECONDS = 2.0  # that a job is expected to take which has no passes to count
_DRAW_SECONDS, _PRINT_SECONDS = 1.0, 30.0
_TAIL = 10  # lines of a failed job's log
_SHOWN = 3  # of the jobs that run
_TRAIN = "train"
_ENDS, _NO_MORE, _AGAIN = "Complete log(s)", ("Terminating", "Will exit"), "Trying to restart job "
_NOISE = ("Assuming", "Building DAG", "Using shell", "Conda env", "Singularity", "Elapsed time")


@dataclass(frozen=True)
class Job:
    rule: str
    name: str
    seconds: float  # expected, on some machine


class Pace:
    """How long jobs take, beside what was expected of them."""

    def __init__(self) -> None:
        self.expected: dict[str, float] = defaultdict(float)  # of the jobs that are done, by rule
        self.taken: dict[str, float] = defaultdict(float)

    def add(self, job: Job, seconds: float) -> None:
        self.expected[job.rule] += job.seconds
        self.taken[job.rule] += seconds

    def left(self, to_come: Iterable[Job], running: Iterable[tuple[Job, float]]) -> float | None:
        """Seconds of all jobs that are not done; None as long as none is."""
        if not self.taken:
            return None
        usual = sum(self.taken.values()) / sum(self.expected.values())

        def seconds(job: Job) -> float:
            known = self.expected.get(job.rule)
            return job.seconds * (self.taken[job.rule] / known if known else usual)

        of_running = sum(max(0.0, seconds(job) - so_far) for job, so_far in running)
        return of_running + sum(map(seconds, to_come))


class Screen:
    """A line that is drawn over itself, and lines that stay above it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.last, self.drawn = stream, "", -_PRINT_SECONDS
        self.terminal = stream.isatty() and os.environ.get("TERM") != "dumb"

    def draw(self, line: str, now: bool = False) -> None:
        if self.terminal:
            self._write("\r\x1b[K" + line[: self._columns() - 1])
        elif line != self.last and (now or time.monotonic() - self.drawn >= _PRINT_SECONDS):
            self._write(line + "\n")
            self.drawn = time.monotonic()
        else:
            return
        self.last = line

    def clear(self) -> None:
        if self.terminal and self.last:
            self._write("\r\x1b[K")

    def say(self, text: str) -> None:
        self.clear()
        self._write(text + "\n")

    def _columns(self) -> int:
        """Of this terminal, as wide as it is now."""
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        return 80

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a pipe that nobody reads any more must not end a build
            self.stream.write(text)
            self.stream.flush()


class Follower(logging.Handler):
    """Stands in for Snakemake's handler of the screen, which still writes what must be read."""

    def __init__(self, own: logging.Handler, stream: TextIO) -> None:
        super().__init__()
        self.own, self.screen, self.pace = own, Screen(stream), Pace()
        self.began, self.ended = 0.0, threading.Event()
        self.jobs: dict[int, Job] = {}  # that are not done; by Snakemake's number
        self.running: dict[int, float] = {}  # and since when
        self.failed: set[int] = set()
        self.done = self.total = self.trained = self.to_train = 0

    def begin(self, jobs: Mapping[int, Job]) -> None:
        """Called when it is known what is to be done."""
        with self._locked():
            self.jobs, self.total, self.began = dict(jobs), len(jobs), time.monotonic()
            self.to_train = sum(job.rule == _TRAIN for job in jobs.values())
            if jobs:
                self.screen.draw(self.line(), now=True)
                threading.Thread(target=self._tick, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        event, text = str(getattr(record, "event", None) or ""), str(record.msg)
        told: Mapping[str, Callable[[Any], None]] = {
            "job_info": lambda r: self._start(r.jobid),
            "job_finished": lambda r: self._finish(r.job_id),
            "job_error": self._fail,
            "progress": self._count,
        }
        if event in told:
            told[event](record)
            if self.began:
                self.screen.draw(self.line())
        elif text.startswith(_AGAIN):
            self.failed.discard(int(text.removeprefix(_AGAIN).rstrip(".")))
        elif text.startswith(_ENDS) and self.began:
            self._end()
            self.own.handle(record)
        elif self._to_be_read(record, event, text):
            self.screen.clear()
            self.own.handle(record)

    def _to_be_read(self, record: logging.LogRecord, event: str, text: str) -> bool:
        if record.levelno >= logging.WARNING:  # but `_fail` tells which job failed, and why
            return not (event == "error" and "CalledProcessError in file" in text)
        if self.began:
            return text.startswith(_NO_MORE)
        return event == "" and not text.startswith(_NOISE)

    def _start(self, number: int) -> None:
        self.running[number] = time.monotonic()

    def _finish(self, number: int) -> None:
        since, job = self.running.pop(number, None), self.jobs.pop(number, None)
        if job and since:
            self.pace.add(job, time.monotonic() - since)
            self.trained += job.rule == _TRAIN

    def _count(self, record: Any) -> None:
        self.done, self.total = record.done, record.total

    def _fail(self, record: Any) -> None:
        self.running.pop(record.jobid, None)
        self.failed.add(record.jobid)
        job = self.jobs.get(record.jobid)
        name, logs = f"{record.rule_name} {job.name if job else ''}".strip(), list(record.log)
        self.screen.say(f"failed: {name}, log: {' '.join(logs) or 'none'}")
        for log in logs:
            for line in _end_of(Path(log)):
                self.screen.say(f"    {line}")

    def line(self) -> str:
        models = f", {self.trained}/{self.to_train} models" if self.to_train else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        begun = {*self.running, *self.failed}
        waiting = [job for number, job in self.jobs.items() if number not in begun]
        now, since = time.monotonic(), self.running.items()
        running = [(self.jobs[number], now - start) for number, start in since if number in self.jobs]
        left = self.pace.left(waiting, running)
        text = f"{self.done}/{self.total} jobs{failed}{models}"
        if left is not None:
            text += f", {clock(left / self._at_once(running))} left"
        shown = [f"{job.rule} {job.name}".strip() for job, _ in running]
        more = [f"{len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
        return " | ".join([text, ", ".join([*shown[:_SHOWN], *more])] if shown else [text])

    def _at_once(self, running: Iterable[tuple[Job, float]]) -> float:
        """How many jobs ran at a time, on average."""
        spent = sum(self.pace.taken.values()) + sum(so_far for _, so_far in running)
        return max(1.0, spent / max(time.monotonic() - self.began, 1e-3))

    def _tick(self) -> None:
        while not self.ended.wait(_DRAW_SECONDS):
            with self._locked():
                if not self.ended.is_set():
                    self.screen.draw(self.line())

    def _end(self) -> None:
        if not self.began or self.ended.is_set():
            return
        self.ended.set()
        failed = f", {len(self.failed)} failed" if self.failed else ""
        models = f", {self.trained} models trained" if self.to_train else ""
        took = clock(time.monotonic() - self.began)
        self.screen.say(f"{self.done} of {self.total} jobs done{failed}{models}, in {took}")

    def close(self) -> None:
        """Snakemake closes its handlers at its end, whatever that was."""
        with self._locked():
            self._end()
        super().close()

    def _locked(self) -> threading.RLock:
        assert self.lock is not None
        return self.lock


def _end_of(log: Path) -> list[str]:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [one_line(line).rstrip() for line in lines if line.strip()][-_TAIL:]


def follow(logger: logging.Logger, settings: Any) -> Follower | None:
    """Puts the line in the place of Snakemake's lines, unless the user asked for those."""
    own = [handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"]
    if not own or settings.dryrun or settings.verbose or settings.quiet or settings.stdout:
        return None
    follower = Follower(own[0], sys.stderr)
    logger.removeHandler(own[0])
    logger.addHandler(follower)
    return follower
