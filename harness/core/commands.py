"""The commands by name, and the module with the `main` of each."""

import argparse
import importlib
import math

from harness.core.errors import unknown

COMMANDS = {
    "plan": "harness.jobs.plan",
    "train": "harness.jobs.train",
    "evaluate": "harness.jobs.evaluate",
    "tables": "harness.reports.tables",
    "figures": "harness.reports.figures.draw",
    "claims": "harness.papers.claims",
    "page": "harness.reports.page.build",
    "robustbench": "harness.reports.robustbench",
    "manifest": "harness.reports.manifest",
    "compare": "harness.reports.compare",
    "audit": "harness.papers.audit",
    "fidelity": "harness.papers.fidelity",
    "fetch": "harness.data.fetch",
    "meter": "harness.jobs.meter",
    "check": "harness.jobs.check",
    "start": "harness.jobs.start",
    "zygote": "harness.jobs.zygote",
}


def positive(text: str) -> int:
    """The type of an argument that counts something."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, found {text!r}")
    return int(text)


def positive_number(text: str) -> float:
    """The type of an argument that measures something."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def run(name: str) -> None:
    """Run a command; its arguments are the rest of sys.argv."""
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, "python -m harness")
    importlib.import_module(COMMANDS[name]).main()
