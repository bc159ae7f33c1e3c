"""One table: `python -m harness tables --scale smoke --artefact cvpr23_table1a`. Torch-free.

The CSV holds one row per cell (cells.py); Markdown and LaTeX are its views, ours beside the published
number, the best two of a column marked as the papers mark them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from harness.core.files import write_whole
from harness.evaluation.records import read_artefact
from harness.evaluation.trust import write_checks
from harness.grid.artefacts import Artefact
from harness.grid.columns import CASCADE, COMPONENTWISE, PROTOCOLS
from harness.grid.plan import Plan, reported
from harness.reports.cells import cells, deviation, unofficial

# How AutoAttack is measured, in words; the same for all rows of a table.
AUTOATTACK = {
    COMPONENTWISE: "AutoAttack is what survives all four components, each run on every image.",
    CASCADE: "AutoAttack is a cascade: each component runs on what survived the ones before.",
}


def _number(cell: pd.Series, wrap: dict[str, str], on_test: str, doubted: str, pm: str) -> str:
    """Ours with its marks, its deviation over seeds if there are several, and the published one."""
    text = wrap[cell["mark"]].format(f"{cell.ours:.2f}")
    text += f"{pm}{cell['std']:.2f}" if pd.notna(cell["std"]) else ""
    text += (on_test if cell.selection == "paper-test" else "") + (
        doubted if cell.failed_checks else ""
    )
    return text + (f" ({cell.published:.2f})" if pd.notna(cell.published) else "")


def _wide(
    table: pd.DataFrame, artefact: Artefact, decorate: Callable[[pd.Series], str]
) -> list[tuple[str, pd.Series, pd.DataFrame]]:
    views = []
    for keys, part in table.groupby(["dataset", "network"], sort=False):
        text = part.apply(decorate, axis=1)
        wide = part.assign(text=text).pivot(index="method", columns="column", values="text")
        labels = part.drop_duplicates("method").set_index("method").label
        wide = wide.loc[labels.index, list(artefact.columns)]
        wide.insert(0, "Method", labels)
        views.append((" with ".join(map(str, keys)), part.iloc[0], wide))
    return views


def markdown(table: pd.DataFrame, artefact: Artefact, notice: str, budget: str = "") -> str:
    wrap = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}

    def decorate(cell: pd.Series) -> str:
        return _number(cell, wrap, "†", "‡", " ± ")

    lines = [f"# {artefact.title}", "", f"*{notice}*", "", *_measured_how(table, artefact, budget)]
    for what, measured, wide in _wide(table, artefact, decorate):
        lines += [
            f"## {what}, measured with {measured.measured_with} on {measured.measured_on}",
            "",
        ]
        lines.append("| " + " | ".join(wide.columns) + " |")
        lines.append("|---" + "|---:" * (len(wide.columns) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in wide.itertuples(index=False, name=None)]
        lines.append("")
    return "\n".join([*lines, *_footnotes(table)]) + "\n"


def _measured_how(table: pd.DataFrame, artefact: Artefact, budget: str) -> list[str]:
    """Above the numbers: protocol, AutoAttack's procedure and budget, images, seeds, intervals."""
    lines = []
    if artefact.protocol != PROTOCOLS[0]:
        calls = table.groupby("column", sort=False).gradient_calls.max()
        made = ", ".join(f"{column}: {count}" for column, count in calls.items() if count)
        lines.append(f"Protocol `{artefact.protocol}`. Gradient calls really made: {made}.")
    if artefact.autoattack:
        lines.append(AUTOATTACK[artefact.autoattack])
    if budget:
        lines.append(f"AutoAttack's budget is shortened at this scale: {budget}.")
    seeds = f", {deviation(table)}" if deviation(table) else ""
    each = " for each" if seeds else ""
    n = f"n = {table.n.max():.0f} test images{each}"
    lines.append(f"Accuracy in %, ours (published){seeds}; {n}.")
    widest = float(((table.high - table.low) / 2).max())
    lines.append(f"95 % intervals are in the CSV: at most ±{widest:.1f} points.")
    return [one for line in lines for one in (line, "")]


def _footnotes(table: pd.DataFrame) -> list[str]:
    """Below the numbers: images that are not official, the marks, failed checks."""
    lines = []
    for name, part in table.groupby("measured_on", sort=False):
        for source in unofficial(part):
            lines += [f"Images of {name}: {source}.", ""]
    lines.append("**best**, <u>second best</u> of a column.")
    if (table.selection == "paper-test").any():
        lines.append("† the checkpoint was selected on test data, as in the papers.")
    if (table.failed_checks != "").any():
        lines += ["‡ a trust check of this model failed:"]
        places = [key for key in ("dataset", "network") if table[key].nunique() > 1]
        doubted = table[table.failed_checks != ""].groupby([*places, "label"], sort=False)
        for (*place, label), part in doubted:
            every = dict.fromkeys("; ".join(part.failed_checks).split("; "))
            lines.append(f"- {', '.join([label, *place])}: {'; '.join(every)}")
    return lines


def latex(table: pd.DataFrame, artefact: Artefact, notice: str) -> str:
    wrap = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}

    def decorate(cell: pd.Series) -> str:
        return _number(cell, wrap, r"$^\dagger$", r"$^\ddagger$", r" $\pm$ ")

    lines = [f"% {notice}", f"% {artefact.title}; ours (published), booktabs needed"]
    for what, _, wide in _wide(table, artefact, decorate):
        lines += [
            f"% {what}",
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
    read = read_artefact(artefact, plan, results)
    table = cells(artefact, read, write_checks(plan, artefact, read, reports), plan)
    notice = plan.scale["notice"]
    budget = ", ".join(f"{count} {what}" for what, count in plan.scale["autoattack"].items())
    stem = reports / plan.name / "tables" / name
    write_whole(stem.with_suffix(".md"), markdown(table, artefact, notice, budget))
    write_whole(stem.with_suffix(".tex"), latex(table, artefact, notice))
    write_whole(stem.with_suffix(".csv"), table.to_csv(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write one table as CSV, Markdown and LaTeX.")
    parser.add_argument("--artefact", required=True)
    plan, options = reported(parser)
    write_table(plan, options.artefact, options.results, options.reports)
