"""What the documents show must run, and what is generated must be current."""

import copy
import importlib
import re
import sys

import pytest
import torch
import yaml
from conftest import ROOT
from test_reductions import gradient_of

from baselines.at import AT
from harness.core.config import merged, read_grid, read_scale
from harness.grid.plan import Plan
from harness.papers.fidelity import fidelity, parts
from harness.training.train import train


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_example_of_a_new_method_works(tmp_path, monkeypatch, batch, clock):
    (code,), (entry,) = blocks("adding-a-method.md", "python"), blocks("adding-a-method.md", "yaml")
    (tmp_path / "my_methods.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    grid = merged(copy.deepcopy(read_grid()), yaml.safe_load(entry))
    grid["registry"] = "my_methods:METHODS"
    grid["methods"] = {slug: grid["methods"][slug] for slug in ("at", "smooth_at")}
    table = {**grid["artefacts"]["cvpr23_table1a"], "methods": ["at", "smooth_at"]}
    grid["artefacts"] = {"cvpr23_table1a": table}
    plan = Plan(grid, read_scale("ci"), "ci")
    run = next(run for run in plan.runs.values() if run.method.slug == "smooth_at")
    assert run.method.objective.smoothing == 0.2
    train(run, tmp_path, torch.device("cpu"))
    assert plan.label("smooth_at") == "AT with label smoothing"
    module = importlib.import_module("my_methods")
    objective = run.method.objective
    pair = module.SmoothAT(objective.threat, smoothing=0.0), AT(objective.threat)
    for one, other in zip(*(gradient_of(method, batch, clock) for method in pair), strict=True):
        torch.testing.assert_close(one, other)
    del sys.modules["my_methods"]


def test_the_fidelity_table_is_current():
    assert (ROOT / "docs" / "fidelity.md").read_text() == fidelity(read_grid())


@pytest.mark.parametrize(
    "line", [line for line in fidelity(read_grid()).splitlines() if line[:3] == "| `"]
)
def test_every_method_names_its_paper_what_is_certain_and_how_it_was_compared(line):
    _, name, paper, _, certain, _, _, compared, _ = (
        cell.strip() for cell in re.split(r"(?<!\\)\|", line)
    )
    assert len(paper) > 20, name
    assert certain != "-", name
    assert compared != "-", name


def test_docstring_parts():
    text = "NAME: Someone, 2020. Text.\n\nCertain: a.\nGuess: b, c. Deviations: d.\nCompared: e."
    found = parts(text)
    assert found == {
        "paper": "NAME: Someone, 2020",
        "certain": "a.",
        "guess": "b, c.",
        "deviation": "d.",
        "compared": "e.",
    }
