"""Rows of a table, image by image: `python -m harness compare --scale lite plusplus_table1 fat at`.

Prints what the first row has more than each other one (than all, if none is named), with the 95 %
interval and the p-value of the paired test, not corrected for the number of comparisons. Of a table
alone it prints how far our order of its rows is the papers': Kendall's tau, column by column, 1 for the
same order and -1 for its reverse, with the p-value that the two have nothing to do with each other.
Torch-free.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from harness.core.errors import expected, unknown
from harness.core.statistics import paired
from harness.evaluation.records import read_artefact, value
from harness.grid.plan import Plan, reported
from harness.reports.cells import cells


def differences(plan: Plan, name: str, one: str, others: Sequence[str], results: Path) -> pd.DataFrame:
    """A line per data set, network, other row and column. All in percent."""
    artefact = plan.artefact(name)
    known = list(dict.fromkeys(row.method for row in artefact.rows))
    for method in (one, *others):
        if method not in known:
            raise unknown("row", method, known, name)
    rivals = others or [method for method in known if method != one]
    rows = tuple(row for row in artefact.rows if row.method in (one, *rivals))
    read = read_artefact(replace(artefact, rows=rows), plan, results)
    images = {
        (cell.dataset, cell.network, cell.method, cell.column): np.stack(
            [value(cell.formula, read[run][0]) for run in cell.runs]
        )
        for cell in artefact.cells
        if cell.method in (one, *rivals) and cell.formula.op != "measured"
    }
    found = []
    for (dataset, network, method, column), theirs in images.items():
        mine = images.get((dataset, network, one, column))
        if method == one or mine is None:
            continue
        test = paired(mine, theirs)
        points = [mine.mean(), theirs.mean(), test.mean, test.low, test.high]
        shown = [round(100 * float(point), 2) for point in points]
        seeds, n = mine.shape
        found.append((dataset, network, method, column, *shown, test.p, n, seeds))
    fields = ["dataset", "network", "against", "column", "one", "other", "difference"]
    return pd.DataFrame(found, columns=[*fields, "low", "high", "p", "n", "seeds"])


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
    plan, options = reported(parser)
    if options.one is None:
        table = agreement(plan, options.artefact, options.results)
    else:
        table = differences(plan, options.artefact, options.one, options.others, options.results)
    print(table.to_string(index=False, formatters={"p": "{:.2g}".format}))
