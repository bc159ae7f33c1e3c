"""The answer: a table with intervals and doubts, flags per image, checks, and what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.core.files import in_csv, in_markdown, write_json, write_whole
from harness.core.statistics import wilson
from harness.evaluation.records import Record, value
from harness.evaluation.trust import Check
from harness.external.doubts import doubts
from harness.external.question import Question
from harness.grid.columns import Column, Formula
from harness.reports.page.render import environment

ACCURACY, FLIPS = "accuracy", "share of flips, no accuracy: lower is better"


@dataclass(frozen=True, repr=False)
class Report:
    """What `benchmark` found. `print(report)` shows the table, `report.save(folder)` writes it all."""

    table: pd.DataFrame  # a row per column: percent, its 95 % interval, gradient calls, doubts
    flags: pd.DataFrame  # a row per image: label, prediction, and per column 1 if it stands
    checks: pd.DataFrame  # name, norm, verdict, what was found
    notes: tuple[str, ...]  # what the trial found odd
    about: Mapping[str, Any]  # model, weights, images, radii, budgets, commit
    folder: Path  # where the command saves it

    def __repr__(self) -> str:
        lines = [f"{self.about['model']} on {self.about['images']}", ""]
        shown = self.table.drop(columns=["doubts", "measures"])
        shown["column"] += ["" if m == ACCURACY else f" ({m})" for m in self.table["measures"]]
        shown[""] = ["do not believe" if text else "" for text in self.table["doubts"]]
        lines += [shown.to_string(index=False, float_format=lambda number: f"{number:.2f}"), ""]
        lines += [f"do not believe {row.column}: {row.doubts}" for row in self._doubted()]
        failed = self.checks[self.checks["verdict"] != "held"]
        lines += [f"failed: {row.check}: {row.found}" for row in failed.itertuples()]
        lines += [f"{len(self.checks) - len(failed)} of {len(self.checks)} checks held"]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _doubted(self) -> list[Any]:
        return [row for row in self.table.itertuples() if row.doubts]

    def _repr_html_(self) -> str:
        """For notebooks."""
        return self.table.to_html(index=False, float_format="%.2f")

    def save(self, folder: Path | str | None = None) -> Path:
        """Write report.md, report.html, report.json and three CSV files."""
        place = Path(folder) if folder is not None else self.folder
        frames = {"table": self.table, "flags": self.flags, "checks": self.checks}
        for name, frame in frames.items():
            write_whole(place / f"{name}.csv", in_csv(frame))
        rows, checks = (frame.to_dict("records") for frame in (self.table, self.checks))
        content = {"about": dict(self.about), "table": _plain(rows), "checks": _plain(checks)}
        write_json(place / "report.json", {**content, "notes": list(self.notes)})
        write_whole(place / "report.md", self._markdown())
        page = environment().get_template("external.html.j2")
        html = page.render(about=self.about, rows=rows, checks=checks, notes=self.notes)
        write_whole(place / "report.html", html)
        return place

    def _markdown(self) -> str:
        lines = [f"# {in_markdown(self.about['model'])}", ""]
        lines += [f"- {name}: {in_markdown(self.about[name])}" for name in self.about]
        lines += [f"- **note**: {in_markdown(note)}" for note in self.notes]
        lines += ["", "| column | % | 95 % | n | gradient calls | norm | eps | measures | doubts |"]
        lines += ["|---|---:|---:|---:|---:|---|---:|---|---|"]
        for row in self.table.itertuples():
            interval = f"{row.low:.2f} to {row.high:.2f}"
            doubted = f"**do not believe**: {in_markdown(row.doubts)}" if row.doubts else ""
            cells = [row.column, f"{row.percent:.2f}", interval, row.n, row.gradient_calls]
            cells += [row.norm, row.eps, row.measures]
            lines.append(f"| {' | '.join(map(in_markdown, cells))} | {doubted} |")
        lines += ["", "| check | norm | verdict | found |", "|---|---|---|---|"]
        for row in self.checks.itertuples():
            verdict = row.verdict if row.verdict == "held" else f"**{row.verdict}**"
            cells = [in_markdown(row.check), row.norm, verdict, in_markdown(row.found)]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def tables(
    question: Question, records: Mapping[str, Record], checks: Sequence[Check], labels: Any
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Table, flags and checks."""
    rows, flags = [], {"label": labels}
    for column in question.shown:
        own = value(column.formula, records)
        low, high = wilson(float(own.sum()), len(own))
        rows.append(
            {
                "column": column.name,
                "norm": " and ".join(sorted(column.norms)),
                "eps": " and ".join(dict.fromkeys(str(ball.eps) for ball in column.balls)),
                "percent": round(100 * float(own.mean()), 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
                "n": len(own),
                "gradient_calls": sum(records[p.id].backward for p in dict.fromkeys(column.probes)),
                "measures": FLIPS if _flips(column.formula) else ACCURACY,
                "doubts": "; ".join(doubts(column, checks)),
            }
        )
        flags[column.name] = own.astype(int) if own.dtype == bool else own
        if column.formula.op == "probe" and column.attack == "none":
            flags["predicted"] = records[column.formula.parts[0]].predicted
    found = [
        {
            "check": check.name,
            "norm": check.norm or "",
            "verdict": "held" if check.ok else "failed",
            "found": check.found,
        }
        for check in checks
    ]
    return pd.DataFrame(rows), pd.DataFrame(flags).rename_axis("image"), pd.DataFrame(found)


def balls(columns: Sequence[Column]) -> str:
    """The radii of a report."""
    found = dict.fromkeys(ball for column in columns for ball in column.balls)
    return ", ".join(f"{ball.norm} {ball.eps}" for ball in found) or "none"


def _flips(formula: Formula) -> bool:
    parts = [part for part in formula.parts if isinstance(part, Formula)]
    return formula.op == "flips" or any(map(_flips, parts))


def _plain(rows: list[dict]) -> list[dict[str, Any]]:
    return [{key: v.item() if hasattr(v, "item") else v for key, v in row.items()} for row in rows]
