"""The commands in groups, each with the module that has its `main` and a line for `--help`."""

import argparse
import importlib
import math

from harness.core.errors import unknown

GROUPS = {
    "your own model": {
        "evaluate": ("harness.jobs.evaluate", "attacks and trust checks on any torch classifier"),
        "export": ("harness.reports.export.command", "Parquet, RobustBench's JSON, model card, hub"),
        "data": ("harness.data.listing", "the data sets: classes, images, where they come from"),
        "fetch": ("harness.data.fetch", "download data sets and compare their checksums"),
    },
    "the papers' tables and figures": {
        "plan": ("harness.jobs.plan", "what the runs of a scale are, and what they will cost"),
        "train": ("harness.jobs.train", "train one run of a scale"),
        "tables": ("harness.reports.tables", "write one table from records"),
        "figures": ("harness.reports.figures.draw", "draw one figure from records"),
        "page": ("harness.reports.page.build", "everything of a scale on one HTML page"),
        "leaderboard": ("harness.reports.page.leaderboard", "ours, others' and published, on one page"),
        "robustbench": ("harness.reports.robustbench", "trained models in RobustBench's form"),
    },
    "what the numbers say": {
        "compare": ("harness.reports.compare", "rows of a table against each other, image by image"),
        "claims": ("harness.papers.claims", "judge the papers' claims by our numbers"),
        "audit": ("harness.papers.audit", "contradictions in the published numbers"),
    },
    "this project": {
        "check": ("harness.jobs.check", "does this machine's GPU do what is asked of it?"),
        "fidelity": ("harness.papers.fidelity", "how close each method is to its paper"),
        "manifest": ("harness.reports.manifest", "checksums of the reports of a scale"),
        "meter": ("harness.jobs.meter", "measure the passes and operations that bills are made of"),
        "start": ("harness.jobs.start", "another command, with a GPU, from the process kept ready"),
        "zygote": ("harness.jobs.zygote", "the process kept ready for jobs"),
    },
}
COMMANDS = {name: module for group in GROUPS.values() for name, (module, _) in group.items()}


def overview() -> str:
    """The commands by group, with a line each."""
    lines = ["usage: generalist-bench COMMAND ...; COMMAND --help says more"]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:12} {line}" for name, (_, line) in group.items()]
    return "\n".join(lines)


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
        raise unknown("command", name, COMMANDS, "generalist-bench")
    importlib.import_module(COMMANDS[name]).main()
