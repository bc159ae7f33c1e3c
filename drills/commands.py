"""Commands as a user would type them (tests/commands.py), and a check of how they refuse."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from drills import demand
from tests.commands import ENVIRONMENT as ENVIRONMENT
from tests.commands import Done as Done
from tests.commands import command as command
from tests.commands import descendants as descendants
from tests.commands import said as said
from tests.commands import snakemake as snakemake
from tests.commands import snakemake_words as snakemake_words


def sentence(done: Done) -> str:
    """The message of a command that refused: one line with expected, found and remedy."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    demand(done.returncode == 2, f"exit code {done.returncode}, not 2: {said(done)[-600:]}")
    demand(len(lines) == 1 and "Traceback" not in done.stderr, f"not one sentence: {done.stderr}")
    check_sentence(lines[0].removeprefix("error: "))
    return lines[0]


def check_sentence(text: str) -> None:
    demand("\n" not in text, f"more than one line: {text}")
    form = r".*expected .+, found:? .+; .+"
    demand(re.match(form, text), f"no sentence with expected, found, remedy: {text}")


def processes_in(folder: Path) -> list[int]:
    """The processes whose working folder this is, orphans included."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if Path(os.readlink(entry)) == folder.resolve():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], object], seconds: float, lost: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        demand(time.monotonic() < deadline, f"{lost} within {seconds:.0f} s")
        time.sleep(0.01)
