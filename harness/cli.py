"""One command for everything: `python -m harness COMMAND ...`."""

import sys

from harness.core.commands import COMMANDS, run
from harness.core.errors import run_command


def chosen() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m harness COMMAND ...; COMMAND --help says more. Commands:")
        print("  " + " ".join(COMMANDS))
        return
    del sys.argv[0]
    run(sys.argv[0])


def main() -> None:
    run_command(chosen)
