"""One table: `python -m harness.tables --scale smoke --artefact cvpr23_table1a`. Torch-free.

The CSV holds one row per cell, with everything known about it; Markdown and LaTeX are its views,
ours beside the published number, the best two of a column marked as the papers mark them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from harness import paths
from harness.config import ROOT
from harness.errors import run_command
from harness.files import write_whole
from harness.plan import Artefact, Plan
from harness.records import Record, read_records
from harness.statistics import wilson

PUBLISHED = ROOT / "reports" / "published" / "values.csv"
KEYS = ["dataset", "network", "method", "column"]


def published(artefact: str) -> pd.DataFrame:
    """The papers' numbers for an artefact, in our words."""
    document, _, name = artefact.partition("_")
    values = pd.read_csv(PUBLISHED)
    values = values[(values.document == document) & (values.artefact == name)]
    names = {"arch": "network", "metric": "column", "value": "published", "std": "published_std"}
    return values.rename(columns=names)[[*KEYS, "published", "published_std"]]


def cells(
    artefact: Artefact, records: Mapping[str, Mapping[str, Record]], plan: Plan
) -> pd.DataFrame:
    """One row per cell. With several seeds: their mean, their deviation, and all images pooled."""
    rows = []
    for cell in artefact.cells:
        flags = [records[run][cell.probe].correct for run in cell.runs]
        accuracies = [100 * float(correct.mean()) for correct in flags]
        n = sum(len(correct) for correct in flags)
        low, high = wilson(sum(int(correct.sum()) for correct in flags), n)
        rows.append(
            {
                "dataset": cell.dataset,
                "network": cell.network,
                "method": cell.method,
                "column": cell.column,
                "label": plan.label(cell.method),
                "ours": round(float(np.mean(accuracies)), 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
                "n": n,
                "seeds": len(cell.runs),
                "std": round(float(np.std(accuracies, ddof=1)), 2) if len(accuracies) > 1 else None,
                "measured_on": plan.dataset(cell.dataset),
                "measured_with": plan.network(cell.network),
                "selection": plan.run(cell.runs[0]).selection.use,
                "runs": " ".join(cell.runs),
            }
        )
    table = pd.DataFrame(rows).merge(published(artefact.name), on=KEYS, how="left")
    table["difference"] = (table.ours - table.published).round(2)
    table["mark"] = table.groupby(["network", "column"], group_keys=False).ours.apply(_marks)
    return table


def _marks(ours: pd.Series) -> pd.Series:
    """`best` and `second` by rank; equal numbers share a mark."""
    rank = ours.rank(method="min", ascending=False)
    return rank.map({1.0: "best", 2.0: "second"}).fillna("")


def _wide(table: pd.DataFrame, artefact: Artefact, decorate) -> list[tuple[str, pd.DataFrame]]:
    views = []
    for network, part in table.groupby("network", sort=False):
        text = part.apply(decorate, axis=1)
        wide = part.assign(text=text).pivot(index="method", columns="column", values="text")
        labels = part.drop_duplicates("method").set_index("method").label
        wide = wide.loc[labels.index, list(artefact.columns)]
        wide.insert(0, "Method", labels)
        views.append((str(network), wide))
    return views


def markdown(table: pd.DataFrame, artefact: Artefact, notice: str) -> str:
    wrap = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}

    def decorate(cell: pd.Series) -> str:
        ours = wrap[cell["mark"]].format(f"{cell.ours:.2f}")
        flag = "†" if cell.selection == "paper-test" else ""
        paper = f" ({cell.published:.2f})" if pd.notna(cell.published) else ""
        return f"{ours}{flag}{paper}"

    lines = [f"# {artefact.title}", "", f"*{notice}*", ""]
    lines += [f"Accuracy in %, ours (published); n = {table.n.max()} test images.", ""]
    for network, wide in _wide(table, artefact, decorate):
        measured = table[table.network == network].iloc[0]
        lines += [
            f"## {network}, measured with {measured.measured_with} on {measured.measured_on}",
            "",
        ]
        lines.append("| " + " | ".join(wide.columns) + " |")
        lines.append("|---" + "|---:" * (len(wide.columns) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in wide.itertuples(index=False, name=None)]
        lines.append("")
    lines.append("**best**, <u>second best</u> of a column.")
    if (table.selection == "paper-test").any():
        lines.append("† the checkpoint was selected on test data, as in the papers.")
    return "\n".join(lines) + "\n"


def latex(table: pd.DataFrame, artefact: Artefact, notice: str) -> str:
    wrap = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}

    def decorate(cell: pd.Series) -> str:
        ours = wrap[cell["mark"]].format(f"{cell.ours:.2f}")
        flag = r"$^\dagger$" if cell.selection == "paper-test" else ""
        paper = f" ({cell.published:.2f})" if pd.notna(cell.published) else ""
        return f"{ours}{flag}{paper}"

    lines = [f"% {notice}", f"% {artefact.title}; ours (published), booktabs needed"]
    for network, wide in _wide(table, artefact, decorate):
        lines += [
            f"% {network}",
            rf"\begin{{tabular}}{{l{'r' * (len(wide.columns) - 1)}}}",
            r"\toprule",
        ]
        lines.append(" & ".join(_escaped(name) for name in wide.columns) + r" \\")
        lines.append(r"\midrule")
        for label, *values in wide.itertuples(index=False, name=None):
            lines.append(" & ".join([_escaped(label), *values]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    for norm in ("l_inf", "l_2"):
        text = text.replace(norm, rf"$\ell_{{{'infty' if norm == 'l_inf' else '2'}}}$")
    text = text.replace("infty", r"\infty").replace("lambda", r"$\lambda$")
    parts = text.split("$")  # even parts are plain text
    parts[::2] = [part.replace("_", r"\_").replace("%", r"\%") for part in parts[::2]]
    return "$".join(parts)


def write_table(plan: Plan, name: str, results: Path, reports: Path) -> None:
    artefact = plan.artefact(name)
    records = {
        run: read_records(paths.records(results, plan.evaluations[run].id))[0]
        for run in artefact.runs
    }
    table, notice = cells(artefact, records, plan), plan.scale["notice"]
    stem = reports / plan.name / "tables" / name
    write_whole(stem.with_suffix(".md"), markdown(table, artefact, notice))
    write_whole(stem.with_suffix(".tex"), latex(table, artefact, notice))
    write_whole(stem.with_suffix(".csv"), table.to_csv(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write one table as CSV, Markdown and LaTeX.")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--artefact", required=True)
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--reports", type=Path, default=Path("reports"))
    options = parser.parse_args()
    plan = Plan.read(options.scale, options.grid)
    write_table(plan, options.artefact, options.results, options.reports)


if __name__ == "__main__":
    run_command(main)
