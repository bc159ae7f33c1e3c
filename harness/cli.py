"""`python -m harness COMMAND ...`: a command is the `main` of a module, imported when it is called."""

from __future__ import annotations

import importlib
import sys

from harness.core.commands import COMMANDS
from harness.core.errors import run_command, unknown


def run(command: str) -> None:
    """The command with the words that stand in sys.argv behind its name."""
    importlib.import_module(COMMANDS[command]).main()


def chosen() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m harness COMMAND ...; COMMAND --help says more. Commands:")
        print("  " + " ".join(COMMANDS))
        return
    if sys.argv[1] not in COMMANDS:
        raise unknown("command", sys.argv[1], COMMANDS, "python -m harness")
    del sys.argv[0]
    run(sys.argv[0])


def main() -> None:
    run_command(chosen)
