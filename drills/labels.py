"""Labels made to harm: each means something to Markdown, LaTeX, CSV, HTML or Matplotlib.

Titles, captions, the notice, rows, columns and classes get such labels. The reports must show them and
have the structure of reports with harmless labels.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from drills import Attempt, Try, demand
from drills.ground import METHODS, TABLE, Ground
from drills.hostile import outside, written_elsewhere
from harness.core.files import in_csv
from harness.grid.plan import Plan
from harness.papers.audit import audit
from harness.papers.claims import judge, markdown, parse
from harness.papers.published import Papers
from harness.reports.figures.draw import write_figure
from harness.reports.page.build import write_page
from harness.reports.robustbench import write_entries
from harness.reports.tables import write_table

COLUMNS = ("NAT", "PGD20", "AA")
FIGURES = {"scatter": COLUMNS[::2], "classes": COLUMNS[::2], "gallery": COLUMNS[::2]}
HOSTILE = [
    "a | b",
    "<script>document.title = 'executed'</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "<!-- -->",
    "&lt;script&gt;",
    "{{ 7 * 7 }} {% raw %}",
    "[link](javascript:alert(1))",
    "![picture](https://example.org/x.png)",
    "`code` **bold** ~~struck~~ # head",
    r"\input{/etc/passwd}",
    r"\immediate\write18{touch executed}",
    r"\end{tabular} % & \\ \\[9cm]",
    "[9cm] * #1 ^^5cinput ~",
    "$x_1$ & $y$",
    "$$",
    r"$\frac{$ costs $ 5",
    "_hidden",
    "=1+1",
    "=cmd|' /C touch executed'!A0",
    "+1+1",
    "-1+1",
    "@SUM(1+1)",
    "\t=1+1",
    "＝1+1",
    "'=1+1",
    'a, "b"; =1',
    "a line\nanother | line",
    "a return\r=1+1",
    "\x1b[31mred \x00 \u202e \u2028",
    "a lone surrogate \ud800",
    "\\",
    "é 漢字 🙂 ℓ∞",
    "-0.5",
]


def config(ground: Ground, label: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The drills' grid and the scale, with labels wherever one is shown."""
    new, grid, scale = iter(label), copy.deepcopy(dict(ground.plan.grid)), dict(ground.plan.scale)
    scale["notice"] = next(new)
    columns = {name: f"{name} {next(new)}" for name in COLUMNS}
    for name, own in columns.items():
        grid["columns"][own] = {**grid["columns"][name], "published": name}
    grid["labels"] = {**grid["labels"], **{method: next(new) for method in METHODS}}
    for kind, shown in {"table": COLUMNS, **FIGURES}.items():
        entry = {**grid["artefacts"][TABLE], "kind": kind, "title": next(new), "caption": next(new)}
        entry |= {"columns": [columns[name] for name in shown], "methods": list(METHODS)}
        entry |= {"show": {"wrong": ["at"]}} if kind == "gallery" else {}
        grid["artefacts"][TABLE if kind == "table" else f"extra_{kind}"] = entry
    dataset = ground.plan.dataset("cifar10")
    classes = [f"{number} {next(new)}" for number in range(10)]
    grid["datasets"][dataset] = {**grid["datasets"][dataset], "classes": classes}
    return grid, scale


def write(plan: Plan, results: Path, reports: Path) -> None:
    """Every report of a scale."""
    write_table(plan, TABLE, results, reports)
    for kind in FIGURES:
        write_figure(plan, f"extra_{kind}", results, reports)
    place = f"{TABLE}/cifar10/resnet18"
    columns = list(plan.artefact(TABLE).columns)
    part = {"better": "at", "than": ["nt"], "columns": columns, "in": [place]}
    entry = {"id": "one", "claim": plan.scale["notice"], "source": plan.label("at"), "all_of": [part]}
    claims = parse({"groups": {}, "places": {}, "claims": [entry]}, plan)
    table, folder = judge(plan, claims, results, reports), reports / plan.name
    (folder / "claims.csv").write_text(in_csv(table))
    (folder / "claims.md").write_text(markdown(table, plan.scale["notice"]))
    write_entries(plan, results, reports)
    write_page(plan, results, reports)
    papers = Papers.read()
    said = papers.statements.assign(said=plan.scale["notice"])
    (folder / "audit.md").write_text(audit(Papers(papers.values, said, papers.leaderboard)))


class _Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def of_html(text: str) -> tuple[Any, str]:
    tags = _Tags()
    tags.feed(text)
    return tags.tags, "".join(tags.text)


def of_markdown(text: str) -> tuple[Any, str]:
    """Its blocks, and what is inside of each that is no text, as markdown-it finds them."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    found, shown = [], []
    for token in parser.parse(text):
        found.append(token.type)
        for child in token.children or ():
            if child.type not in ("text", "text_special"):
                found.append(f"{child.type} {child.content}")
            shown.append(child.content)
    return found, "".join(shown)


def of_latex(text: str) -> tuple[Any, str]:
    """Its commands, and the number of cells of each row; comments end with their line."""
    lines = [re.sub(r"(?<!\\)%.*", "", line) for line in text.splitlines()]
    plain = [re.sub(r"\\(textbackslash|textasciitilde|\^)\{\}|\\[#$%&_{}]", "", line) for line in lines]
    maths = [re.sub(r"\$[^$]*\$", "", line) for line in plain]
    rows = [(re.findall(r"\\[a-zA-Z]+|\\.|[$#^~]", line), line.count("&")) for line in maths]
    return [row for row in rows if row != ([], 0)], text


def of_csv(text: str) -> tuple[Any, str]:
    """The number of cells of each row; none may be a formula."""
    rows = list(csv.reader(io.StringIO(text, newline="")))
    for cell in (cell for row in rows for cell in row):
        number = re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", cell)
        formula = cell.lstrip().startswith(("=", "+", "-", "@", "＝"))
        demand(number or not formula, f"a formula: {cell!r}")
    return [len(row) for row in rows], "\n".join(cell for row in rows for cell in row)


READERS = {".html": of_html, ".md": of_markdown, ".tex": of_latex, ".csv": of_csv}


def structures(folder: Path) -> dict[str, tuple[Any, str]]:
    """What each text report consists of, as a reader of its format finds it, and its text."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in READERS:
            found[path.name] = READERS[path.suffix](path.read_text())
        elif path.suffix == ".json":
            json.loads(path.read_text())
    return found


def labels(ground: Ground) -> Attempt:
    """hostile labels in every report: Markdown, LaTeX, CSV, the page, figures"""

    def written(folder: Path, words: list[str]) -> tuple[Plan, dict[str, tuple[Any, str]]]:
        plan = Plan(*config(ground, words), "ci")
        write(plan, ground.built / "results", folder)
        return plan, structures(folder)

    plain = [f"harmless {number}" for number in range(len(HOSTILE))]
    _, harmless = written(ground.folder / "harmless labels", plain)

    def attempt(this: Try) -> str:
        before = outside(this.folder)
        words = this.random.sample(HOSTILE, len(HOSTILE))
        plan, found = written(this.folder / "own", words)
        demand(found.keys() == harmless.keys(), f"other files: {sorted(found)}")
        for name, (structure, _) in found.items():
            pairs = zip(structure, harmless[name][0], strict=False)
            differ = [pair for pair in pairs if pair[0] != pair[1]]
            same = structure == harmless[name][0]
            demand(same, f"another structure of {name}: {differ[:3]}, of {words}")
        for label in filter(str.isprintable, map(plan.label, METHODS)):
            demand(label in found["index.html"][1], f"{label!r} is not on the page")
        escaped = written_elsewhere(this.folder)
        demand(not escaped, f"executed, or written where it does not belong: {escaped}")
        demand(outside(this.folder) == before, "something was written outside")
        return "shown, and nothing else"

    return attempt
