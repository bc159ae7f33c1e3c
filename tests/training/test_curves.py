"""Live curves: every row of the history, and no other training for it."""

import subprocess
import sys

import pytest
import torch
from conftest import ROOT, run_of, weights

from harness.core import paths
from harness.core.errors import UserError
from harness.models.networks import load_model
from harness.training.curves import curves
from harness.training.train import train

CPU = torch.device("cpu")


def trained(plan, folder, curve=None):
    run = run_of(plan, "nt")
    train(run, folder, CPU, curve)
    return weights(load_model(folder, run.id)), paths.history(folder, run.id).read_text(), run


def test_a_curve_sees_every_row_and_changes_nothing(plan, tmp_path):
    seen = []

    def curve(row):
        seen.append(dict(row))
        row.clear()  # of its copy

    plain, history, run = trained(plan, tmp_path / "plain")
    watched, same, again = trained(plan, tmp_path / "watched", curve)
    assert torch.equal(plain, watched)
    assert (history, run.id) == (same, again.id)
    rows = paths.read_history(tmp_path / "watched", run.id)
    assert [row["epoch"] for row in seen] == list(rows.epoch)
    assert len(seen) == run.recipe.epochs
    assert all(row[name] == rows[name][i] for i, row in enumerate(seen) for name in row)


def test_a_curve_that_fails_does_not_end_the_training(plan, tmp_path, capsys):
    calls = []

    def curve(row):
        calls.append(row)
        raise OSError("no space left")

    _, history, run = trained(plan, tmp_path, curve)
    assert len(calls) == 1
    assert len(history.splitlines()) == run.recipe.epochs + 1
    assert "the curves stop here: OSError: no space left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "expected tensorboard:FOLDER or module:function"),
        ("no.such.module:f", "expected a module no.such.module"),
        ("math:pi", "expected a function pi in math"),
    ],
)
def test_a_wrong_address_is_one_sentence(address, said):
    with pytest.raises(UserError, match=said):
        curves(address, "run")


def test_tensorboard_or_a_word(tmp_path, monkeypatch):
    written = []

    class SummaryWriter:  # tensorboard's own, which is not installed with this project
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def flush(self):
            written.append("flushed")

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    curves(f"tensorboard:{tmp_path}", "a-run")({"epoch": 2, "natural:nt": 0.5})
    assert written == [str(tmp_path / "a-run"), ("natural/nt", 0.5, 2), "flushed"]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match="pip install tensorboard"):
        curves("tensorboard:x", "a-run")


def test_the_command_calls_a_function_of_one_s_own(plan, tmp_path):
    run = run_of(plan, "nt")
    (tmp_path / "mine.py").write_text("def show(row):\n    print('row', int(row['epoch']))\n")
    words = ["-m", "harness", "train", "--scale", "ci", "--run", run.id, "--curves", "mine:show"]
    done = subprocess.run(
        [sys.executable, *words, "--device", "cpu"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("row")]
    assert rows == [f"row {n + 1}" for n in range(run.recipe.epochs)]
