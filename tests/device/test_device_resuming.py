"""A run that is told to leave, and continued, ends with the weights of an undisturbed one."""

import dataclasses
from fractions import Fraction

import pytest
from conftest import run_of
from rehearsal import CUDA, trained
from test_train import checksum

from harness.core import process
from harness.training.runs import Watch
from harness.training.train import train

STEPS = 9  # of 12: after two redistributions of Generalist's, in the last epoch


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return tmp_path_factory.mktemp("whole")


def leaves_and_continues(plan, run, whole, parts, monkeypatch, capsys):
    trained(plan, run, whole)
    (parts / "models").mkdir()
    for parent in run.parents:
        (parts / "models" / parent).symlink_to(whole / "models" / parent)
    asked = iter(range(1, 100))
    with monkeypatch.context() as patch:
        patch.setattr(process, "requested", lambda: next(asked) == STEPS)
        with pytest.raises(process.Stopped, match=r"after epoch 2 and 1 steps"):
            train(run, parts, CUDA)
    train(run, parts, CUDA)
    assert "continuing" in capsys.readouterr().out
    assert checksum(whole, run) == checksum(parts, run)


@pytest.mark.parametrize(
    "slug", ["at", "fat", "ramp", "eat", "rmc", "generalist_t", "generalist_d_nt_linf@validated"]
)
def test_a_run_continues(plan, slug, whole, tmp_path, monkeypatch, capsys):
    leaves_and_continues(plan, run_of(plan, slug), whole, tmp_path, monkeypatch, capsys)


def test_a_watched_run_continues(plan, whole, tmp_path, monkeypatch, capsys):
    """Its images of the epochs before are read from the checkpoint, and written at the end."""
    attack = plan.columns.pgd("digits", "linf", 3)
    watch = Watch(attack, examples=40, moments=(Fraction(1, 3), Fraction(1)))
    run = run_of(plan, "generalist_d_nt_linf", watch=watch)
    leaves_and_continues(plan, run, whole, tmp_path, monkeypatch, capsys)


def test_learners_in_processes_continue(plan, whole, tmp_path, monkeypatch, capsys):
    run = run_of(plan, "generalist_d_nt_linf")
    run = dataclasses.replace(run, method=dataclasses.replace(run.method, parallel=True))
    leaves_and_continues(plan, run, whole, tmp_path, monkeypatch, capsys)
