"""One table: `generalist-bench tables --scale smoke --artefact cvpr23_table1a`. Torch-free.

The CSV holds one row per cell (cells.py); Markdown and LaTeX are its views, ours beside the published
number, the best two of a column marked as the papers mark them.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from harness.core.files import in_csv, in_markdown, one_line, write_whole
from harness.evaluation.records import read_artefact
from harness.evaluation.trust import write_checks
from harness.grid.artefacts import Artefact
from harness.grid.columns import CASCADE, COMPONENTWISE, PROTOCOLS
from harness.grid.plan import Plan, reported
from harness.reports.cells import budget, cells, deviation, unofficial

# How AutoAttack is measured, in words; the same for all rows of a table.
AUTOATTACK = {
    COMPONENTWISE: "AutoAttack is what survives all four components, each run on every image.",
    CASCADE: "AutoAttack is a cascade: each component runs on what survived the ones before.",
}
# By a cell's mark: how its number is written; then the signs behind it.
_MARKDOWN = {"best": "**{}**", "second": "<u>{}</u>", "": "{}", "±": " ± ", "†": "†", "‡": "‡"}
_LATEX = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
_LATEX |= {"±": r" $\pm$ ", "†": r"$^\dagger$", "‡": r"$^\ddagger$"}
_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "#$%&_{}"})
_SIGNS |= str.maketrans({"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"})
_SIGNS |= str.maketrans({"[": "{[}", "*": "{*}"})  # behind the end of a row they are its arguments
_MATHS = {"l_inf": r"$\ell_{\infty}$", "l_2": r"$\ell_{2}$", "lambda": r"$\lambda$"}


def _number(cell: pd.Series, signs: dict[str, str]) -> str:
    """Ours with its marks, its deviation over seeds if there are several, and the published one."""
    text = signs[cell["mark"]].format(f"{cell.ours:.2f}")
    text += f"{signs['±']}{cell['std']:.2f}" if pd.notna(cell["std"]) else ""
    text += signs["†"] if cell.selection == "paper-test" else ""
    text += signs["‡"] if cell.failed_checks else ""
    return text + (f" ({cell.published:.2f})" if pd.notna(cell.published) else "")


def _wide(
    table: pd.DataFrame, artefact: Artefact, signs: dict[str, str]
) -> Iterator[tuple[str, pd.Series, pd.DataFrame]]:
    for keys, part in table.groupby(["dataset", "network"], sort=False):
        text = part.apply(_number, axis=1, signs=signs)
        wide = part.assign(text=text).pivot(index="method", columns="column", values="text")
        labels = part.drop_duplicates("method").set_index("method").label
        wide = wide.loc[labels.index, list(artefact.columns)]
        wide.insert(0, "Method", labels, allow_duplicates=True)
        yield " with ".join(map(str, keys)), part.iloc[0], wide


def markdown(table: pd.DataFrame, artefact: Artefact, notice: str, shortened: str = "") -> str:
    lines = [f"# {in_markdown(artefact.title)}", "", f"*{in_markdown(notice)}*", ""]
    lines += _measured_how(table, artefact, shortened)
    for what, first, wide in _wide(table, artefact, _MARKDOWN):
        lines += [f"## {what}, measured with {first.measured_with} on {first.measured_on}", ""]
        lines += ["| " + " | ".join(map(in_markdown, wide.columns)) + " |"]
        lines += ["|---" + "|---:" * (len(wide.columns) - 1) + "|"]
        for label, *values in wide.itertuples(index=False, name=None):
            lines += ["| " + " | ".join([in_markdown(label), *values]) + " |"]
        lines += [""]
    return "\n".join([*lines, *_footnotes(table)]) + "\n"


def _measured_how(table: pd.DataFrame, artefact: Artefact, shortened: str) -> list[str]:
    """Above the numbers: protocol, AutoAttack's procedure and budget, images, seeds, intervals."""
    lines = []
    if artefact.protocol != PROTOCOLS[0]:
        calls = table.groupby("column", sort=False).gradient_calls.max()
        made = ", ".join(f"{in_markdown(name)}: {count}" for name, count in calls.items() if count)
        lines.append(f"Protocol `{artefact.protocol}`. Gradient calls really made: {made}.")
    if artefact.autoattack:
        lines.append(AUTOATTACK[artefact.autoattack])
    if shortened:
        lines.append(f"AutoAttack's budget is shortened at this scale: {shortened}.")
    seeds, each = (f", {deviation(table)}", " for each") if deviation(table) else ("", "")
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
            lines += [f"Images of {name}: {in_markdown(source)}.", ""]
    lines.append("**best**, <u>second best</u> of a column.")
    if (table.selection == "paper-test").any():
        lines.append("† the checkpoint was selected on test data, as in the papers.")
    doubted = table[table.failed_checks != ""]
    if not doubted.empty:
        lines.append("‡ a trust check of this model failed:")
        places = [key for key in ("dataset", "network") if table[key].nunique() > 1]
        for (*place, label), part in doubted.groupby([*places, "label"], sort=False):
            every = dict.fromkeys("; ".join(part.failed_checks).split("; "))
            failed = f"{', '.join([label, *place])}: {'; '.join(every)}"
            lines.append(f"- {in_markdown(failed)}")
    return lines


def latex(table: pd.DataFrame, artefact: Artefact, notice: str) -> str:
    title, notice = one_line(artefact.title), one_line(notice)
    lines = [f"% {notice}", f"% {title}; ours (published), booktabs needed"]
    for what, _, wide in _wide(table, artefact, _LATEX):
        columns = "l" + "r" * (len(wide.columns) - 1)
        lines += [f"% {what}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
        lines += [" & ".join(map(_escaped, wide.columns)) + r" \\", r"\midrule"]
        for label, *values in wide.itertuples(index=False, name=None):
            lines.append(" & ".join([_escaped(label), *values]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """A label in LaTeX, its norms and lambda as in the papers."""
    parts = re.split(f"({'|'.join(_MATHS)})", one_line(text))
    return "".join(_MATHS.get(part) or part.translate(_SIGNS) for part in parts)


def write_table(plan: Plan, name: str, results: Path, reports: Path) -> None:
    artefact = plan.artefact(name)
    read = read_artefact(artefact, plan, results)
    table = cells(artefact, read, write_checks(plan, artefact, read, reports), plan)
    stem, notice = reports / plan.name / "tables" / name, plan.scale["notice"]
    write_whole(stem.with_suffix(".md"), markdown(table, artefact, notice, budget(plan)))
    write_whole(stem.with_suffix(".tex"), latex(table, artefact, notice))
    write_whole(stem.with_suffix(".csv"), in_csv(table))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write one table as CSV, Markdown and LaTeX.")
    parser.add_argument("--artefact", required=True)
    plan, options = reported(parser, "tables")
    write_table(plan, options.artefact, options.results, options.reports)
