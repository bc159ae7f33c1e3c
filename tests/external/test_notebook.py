"""docs/benchmark.ipynb: its cells in order, as a reader runs them, in a folder of his own."""

import json

from conftest import ROOT

NOTEBOOK = json.loads((ROOT / "docs" / "benchmark.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, source in enumerate(CODE):
        exec(compile(source, f"cell {number}", "exec"), names)
    assert (tmp_path / "report-of-net" / "report.html").exists()
    shown = capsys.readouterr().out
    assert shown.count("do not believe AA") == 1  # the second network's, not the first's
    assert "shortened" in names["report"].about["AutoAttack"]
    assert list(names["own"].table["column"]) == ["NAT", "PGD10", "Square"]


def test_the_notebook_holds_no_outputs():
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
