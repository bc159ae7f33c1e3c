"""One command for everything: `python -m harness COMMAND ...`."""

from harness.cli import main

main()
