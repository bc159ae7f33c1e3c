"""`python -m harness COMMAND ...` is `generalist-bench COMMAND ...`, where nothing is installed."""

from harness.cli import main

main()
