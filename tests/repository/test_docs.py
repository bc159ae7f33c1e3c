"""What the documents show must run, and what is generated must be current."""

import copy
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from conftest import ROOT, generator

from baselines.at import AT
from harness.core.config import merged, read_grid, read_scale
from harness.core.paths import read_description
from harness.data import load
from harness.data.sets import SETS
from harness.evaluation.evaluate import evaluate
from harness.evaluation.records import read_evaluation
from harness.grid.plan import Plan
from harness.jobs import bill, meter
from harness.jobs.resources import Machine
from harness.models.networks import load_model, new_model
from harness.papers.fidelity import fidelity, parts
from harness.reports.tables import write_table
from harness.training.train import train

CPU = torch.device("cpu")


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def planned(document: str, artefact: str, methods: list[str], folder: Path, **changes) -> Plan:
    """The grid with a guide's entries, at scale ci, with few rows of one artefact."""
    (entry,) = blocks(document, "yaml")
    grid = merged(copy.deepcopy(read_grid()), yaml.safe_load(entry))
    grid["artefacts"] = {artefact: {**grid["artefacts"][artefact], "methods": methods}}
    (folder / "grid.yaml").write_text(yaml.safe_dump({**grid, **changes}))
    return Plan(read_grid(folder / "grid.yaml"), read_scale("ci"), "ci")


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A guide's code as a module that can be imported."""

    def imported(document: str, name: str) -> ModuleType:
        (code,) = blocks(document, "python")
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    monkeypatch.syspath_prepend(str(tmp_path))
    return imported


def built(plan: Plan, artefact: str, folder: Path) -> str:
    """Train and evaluate every model of a plan; its table as Markdown."""
    for run in plan.runs.values():
        train(run, folder, CPU)
        weights = read_description(folder, run.id)["sha256"]
        evaluate(plan.evaluations[run.id], load_model(folder, run.id), weights, folder, CPU)
    write_table(plan, artefact, folder, folder)
    return (folder / "ci" / "tables" / f"{artefact}.md").read_text()


def test_the_example_of_a_new_method_works(example, tmp_path, batch, clock):
    module = example("adding-a-method.md", "my_methods")
    rows, registry = ["at", "smooth_at"], "my_methods:METHODS"
    plan = planned("adding-a-method.md", "cvpr23_table1a", rows, tmp_path, registry=registry)
    run = next(run for run in plan.runs.values() if run.method.slug == "smooth_at")
    objective = run.method.objective
    assert objective.smoothing == 0.2
    train(run, tmp_path, CPU)
    assert plan.label("smooth_at") == "AT with label smoothing"
    pair = module.SmoothAT(objective.threat, smoothing=0.0), AT(objective.threat)
    networks = [new_model("tiny", 1, 10, seed=0) for _ in pair]
    for loss, network in zip(pair, networks, strict=True):
        loss(network.train(), batch, clock, generator()).backward()
    for one, other in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert "smooth_at" in bill.text(plan, meter.rates(plan), None)
    assert Machine().train(plan, run.id).minutes > 0
    assert "| `smooth_at` |" in fidelity(plan.grid)


def test_the_example_of_a_new_attack_works(example, tmp_path):
    module = example("adding-an-attack.md", "my_attacks")
    registry = "my_attacks:ATTACKS"
    plan = planned("adding-an-attack.md", "cvpr23_table1a", ["at"], tmp_path, attacks=registry)
    probe = plan.columns.probe("Noise", "digits")
    assert isinstance(probe.attack, module.Noise)
    assert probe.attack.draws == 20
    table = built(plan, "cvpr23_table1a", tmp_path)
    assert re.search(r"\| Method \| NAT \| Noise \| PGD20 \|", table)
    assert re.search(r"\| AT[^|]* \|( [^|]*\d\.\d\d[^|]* \|){3}", table)
    (evaluation,) = plan.evaluations.values()
    record = read_evaluation(tmp_path, evaluation)[0][probe.id]
    assert 0 < record.forward_examples <= bill.of_evaluation((probe,)).all_forward
    assert "1 models" in bill.text(plan, bill.known_rates(), None)


def test_the_example_of_a_new_data_set_works(example, folder, monkeypatch):
    monkeypatch.setitem(SETS, "shapes", example("adding-a-data-set.md", "my_sets").SHAPES)
    (folder / "shapes").mkdir()
    for seed, (split, number) in enumerate(SETS["shapes"].images.items()):
        y = np.arange(number) % 10
        noise = np.random.default_rng(seed).integers(0, 40, (number, 1, 8, 8))
        x = (noise + 20 * y[:, None, None, None]).astype(np.uint8)
        np.savez(folder / "shapes" / f"{split}.npz", x=x, y=y)
    assert len(load("shapes", "train")) == 540
    plan = planned("adding-a-data-set.md", "shapes_table", ["nt"], folder)
    assert {run.dataset for run in plan.runs.values()} == {"shapes"}
    table = built(plan, "shapes_table", folder)
    assert "shapes with resnet18, measured with tiny on shapes" in table
    assert "1 models" in bill.text(plan, meter.rates(plan), None)
    assert all(Machine().train(plan, run).megabytes > 0 for run in plan.runs)


def test_the_example_of_a_new_table_works(tmp_path):
    plan = planned("adding-a-table.md", "steps_table", ["nt", "at"], tmp_path)
    assert [row.method for row in plan.artefact("steps_table").rows] == ["nt", "at"]
    table = built(plan, "steps_table", tmp_path)
    assert table.startswith("# PGD of 5 and of 20 steps\n")
    assert len(re.findall(r"^\| (?:NT|AT)[^|]*\|(?: [^|]*\d\.\d\d[^|]* \|){3}$", table, re.M)) == 2


def method_of(line: str) -> str | None:
    found = re.match(r"\| `(\w+)`", line)
    return found[1] if found else None


FIDELITY = (ROOT / "docs" / "fidelity.md").read_text().splitlines()
LISTED = {method_of(line) for line in FIDELITY}


def test_the_fidelity_table_is_current():
    """A method that it does not list yet is no mistake: python -m harness fidelity adds it."""
    lines = fidelity(read_grid()).splitlines()
    assert [line for line in lines if method_of(line) in LISTED] == FIDELITY


@pytest.mark.parametrize("line", [line for line in FIDELITY if method_of(line)])
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
