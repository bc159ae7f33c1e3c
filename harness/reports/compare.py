"""Rows of a table, image by image: `generalist-bench compare --scale lite plusplus_table1 fat at`.

Prints what the first row has more than each other one (than all, if none is named), with the 95 %
interval and the p-value of the paired test, not corrected for the number of comparisons. Of a table
alone it prints how far our order of its rows is the papers': Kendall's tau, column by column, 1 for the
same order and -1 for its reverse, with the p-value that the two have nothing to do with each other.
With `--against SCALE` each row is compared with itself at another scale, which has the same test images
and another recipe: bfloat16, for example. Torch-free.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from harness.core.errors import expected, unknown
from harness.core.files import one_line
from harness.core.statistics import paired
from harness.evaluation.records import read_artefact, value
from harness.grid.plan import Plan, reported
from harness.reports.cells import cells

Images = dict[tuple[str, str, str, str], np.ndarray]  # data set, network, row, column -> seeds x images
FIELDS = ["dataset", "network", "against", "column", "one", "other", "difference"]
FIELDS += ["low", "high", "p", "n", "seeds"]


def survivors(plan: Plan, name: str, methods: Sequence[str], results: Path) -> Images:
    """Which images each of the rows gets right, cell by cell; of all rows, if none is named."""
    artefact, methods = plan.artefact(name), _known(plan, name, methods)
    rows = tuple(row for row in artefact.rows if row.method in methods)
    read = read_artefact(replace(artefact, rows=rows), plan, results)
    return {
        (cell.dataset, cell.network, cell.method, cell.column): np.stack(
            [value(cell.formula, read[run][0]) for run in cell.runs]
        )
        for cell in artefact.cells
        if cell.method in methods and cell.formula.op != "measured"
    }


def _known(plan: Plan, name: str, methods: Sequence[str]) -> Sequence[str]:
    """The rows that are named, or all; a name that is not one is refused."""
    known = list(dict.fromkeys(row.method for row in plan.artefact(name).rows))
    for method in methods:
        if method not in known:
            raise unknown("row", method, known, name)
    return methods or known


def differences(plan: Plan, name: str, one: str, others: Sequence[str], results: Path) -> pd.DataFrame:
    """A line per data set, network, other row and column. All in percent."""
    _known(plan, name, [one])
    images, found = survivors(plan, name, [one, *others] if others else [], results), []
    for (dataset, network, method, column), theirs in images.items():
        mine = images.get((dataset, network, one, column))
        if method != one and mine is not None:
            found.append((dataset, network, method, column, *_tested(mine, theirs)))
    return pd.DataFrame(found, columns=FIELDS)


def across(plan: Plan, other: Plan, name: str, methods: Sequence[str], results: Path) -> pd.DataFrame:
    """A line per data set, network, row and column: the row at one scale against itself at another."""
    mine, theirs = (survivors(own, name, methods, results) for own in (plan, other))
    found = []
    for (dataset, network, method, column), images in mine.items():
        others = theirs.get((dataset, network, method, column))
        if others is not None and others.shape == images.shape:
            against = f"{method} at {other.name}"
            found.append((dataset, network, against, column, *_tested(images, others)))
    if not found:
        what = f"rows of {name} with the same data set, seeds and test images at both scales"
        raise expected(what, "none", "let the scales differ in their recipe alone")
    return pd.DataFrame(found, columns=FIELDS)


def _tested(mine: np.ndarray, theirs: np.ndarray) -> tuple[float, ...]:
    """Both accuracies, their difference with its interval and p-value, images, seeds."""
    test = paired(mine, theirs)
    points = [mine.mean(), theirs.mean(), test.mean, test.low, test.high]
    seeds, n = mine.shape
    return (*(round(100 * float(point), 2) for point in points), test.p, n, seeds)


def agreement(plan: Plan, name: str, results: Path) -> pd.DataFrame:
    """A line per data set, network and column of which the papers print two rows or more."""
    artefact = plan.artefact(name)
    read = read_artefact(artefact, plan, results)
    table = cells(artefact, read, {}, plan).dropna(subset="published")
    found = []
    for where, part in table.groupby(["dataset", "network", "column"], sort=False):
        if len(part) > 1:
            test = kendalltau(part.ours, part.published)
            found.append((*where, len(part), round(float(test.statistic), 2), float(test.pvalue)))
    if not found:
        remedy = "name a row of it to compare with its others"
        raise expected("an artefact of which the papers print two rows or more", name, remedy)
    return pd.DataFrame(found, columns=["dataset", "network", "column", "rows", "tau", "p"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare rows of a table image by image.")
    parser.add_argument("artefact", help="a table or figure, such as plusplus_table1")
    parser.add_argument("one", nargs="?", help="a row of it, such as generalist_t")
    parser.add_argument("others", nargs="*", help="rows to compare it with; default: all")
    parser.add_argument("--against", metavar="SCALE", help="compare the rows with themselves there")
    plan, options = reported(parser)
    rows = [options.one, *options.others] if options.one else []
    if options.against:
        other = Plan.read(options.against, options.grid)
        table = across(plan, other, options.artefact, rows, options.results)
    elif not rows:
        table = agreement(plan, options.artefact, options.results)
    else:
        table = differences(plan, options.artefact, rows[0], rows[1:], options.results)
    text = table.to_string(index=False, formatters={"p": "{:.2g}".format})
    print("\n".join(map(one_line, text.split("\n"))))  # a terminal obeys some characters
