"""Rewrite the golden files after a change that is meant: ids.json, table.md, table.tex."""

import json
import sys
from pathlib import Path

from harness.grid.plan import Plan
from harness.reports.tables import latex, markdown

HERE = Path(__file__).parent

if __name__ == "__main__":
    tests = HERE.parent
    sys.path[:0] = [str(tests), str(tests / "reports"), str(tests.parent)]
    from test_tables import small_table

    ids = {scale: sorted(Plan.read(scale).runs) for scale in ("smoke", "paper")}
    (HERE / "ids.json").write_text(json.dumps(ids, indent=1) + "\n")
    artefact, table = small_table(Plan.read("ci"))
    (HERE / "table.md").write_text(markdown(table, artefact, "a notice"))
    (HERE / "table.tex").write_text(latex(table, artefact, "a notice"))
