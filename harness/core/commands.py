"""The commands by name, and the module with the `main` of each."""

import importlib

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
    "start": "harness.jobs.start",
    "zygote": "harness.jobs.zygote",
}


def run(name: str) -> None:
    """Run a command; its arguments are the rest of sys.argv."""
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, "python -m harness")
    importlib.import_module(COMMANDS[name]).main()
