"""One command for everything: `generalist-bench COMMAND ...`; the workflow says `python -m harness`."""

import sys

from harness.core.commands import overview, run
from harness.core.errors import run_command


def chosen() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(overview())
        return
    del sys.argv[0]
    run(sys.argv[0])


def main() -> None:
    run_command(chosen)
