"""The commands, and the module whose `main` each one is."""

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
