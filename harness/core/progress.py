"""How far a job is and how long it will take: one line, redrawn on a terminal, sparse in a log."""

from __future__ import annotations

import sys
import time

_REDRAW_SECONDS = 0.2
_LOG_SECONDS = 5.0


class Progress:
    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.first = what, max(total, 1), done
        self.began = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.every = _REDRAW_SECONDS if self.terminal else _LOG_SECONDS
        self.last = self.began

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now - self.last < self.every and done < self.total:
            return
        self.last = now
        rate = (done - self.first) / max(now - self.began, 1e-9)
        left = _clock((self.total - done) / rate) if rate > 0 else "?"
        line = f"{self.what}  {100 * done // self.total:3d} %  {left} left  {note}"
        if self.terminal:
            end = "\n" if done >= self.total else ""
            print(f"\r\x1b[K{line}", end=end, file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
