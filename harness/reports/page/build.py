"""The page of a scale: `generalist-bench page --scale smoke`. One file, no network, torch-free.

Style, script and figures are inside it. Its content security policy allows only its own script, so
text from a config could not run even if a template forgot to escape it.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from harness.core.files import write_whole
from harness.core.process import provenance
from harness.grid.plan import Plan, reported
from harness.reports.page.artefacts import figures, methods, tables, verdicts
from harness.reports.page.finding import trade_off
from harness.reports.page.render import environment
from harness.reports.page.runs import runs


def images(plan: Plan, trained: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each data set that was used: what it stands for, and the source of its images.

    The records name the source of test images, a run the source of its training images.
    """
    sources: dict[str, set[str]] = {name: set() for name in plan.data_sets}
    for about in trained:
        for name, source in about["sources"].items():
            sources[name.partition("/")[0]].add(source)
    learnt = {
        about["run"]["dataset"]: "{images} images, {source}".format(**about["trained_on"])
        for about in trained
        if "trained_on" in about
    }
    datasets = plan.scale["datasets"].items()
    return [
        {
            "name": name,
            "stands_for": [papers for papers, ours in datasets if ours == name],
            "test": sorted(found),
            "train": learnt.get(name),
        }
        for name, found in sources.items()
    ]


def checks(trained: list[dict[str, Any]]) -> dict[str, Any]:
    """Failed checks in full, the others as counts: the section of each run lists all of its checks."""
    every = [check for about in trained for check in about["checks"]]
    counts = Counter((check["name"], check["norm"] or "", check["ok"]) for check in every)
    kinds = sorted({(name, norm) for name, norm, _ in counts})
    return {
        "failed": [check for check in every if not check["ok"]],
        "total": len(every),
        "kinds": [(*kind, counts[*kind, True], counts[*kind, False]) for kind in kinds],
    }


def write_page(plan: Plan, results: Path, reports: Path) -> Path:
    folder, trained = reports / plan.name, runs(plan, results, reports)
    numbers = tables(plan, folder)
    page = environment().get_template("index.html.j2")
    html = page.render(
        plan=plan,
        tables=numbers,
        methods=methods(plan, numbers),
        chart=trade_off(plan, numbers),
        figures=figures(plan, folder),
        verdicts=verdicts(plan, folder),
        images=images(plan, trained),
        runs=trained,
        checks=checks(trained),
        made=provenance(),
    )
    path = folder / "index.html"
    write_whole(path, html)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the page of a scale.")
    plan, options = reported(parser)
    path = write_page(plan, options.results, options.reports)
    print(f"the page is at {path}")
