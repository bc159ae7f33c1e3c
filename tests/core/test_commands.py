"""What a user may type wrongly: one line, no traceback, and nothing done that was not meant."""

import dataclasses
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from commands import ENVIRONMENT
from conftest import ARTEFACT, command, run_of

from harness.core.errors import UserError, unknown
from harness.core.process import lasting
from harness.grid.specs import write_spec
from harness.jobs import evaluate, train, zygote
from harness.machine.device import enough_memory
from harness.training.runs import Augment

TRAIN = ("harness", "train", "--scale", "ci")
COUNT = "expected a whole number from 1 on"
NET = "from torch import nn\n\n\ndef build():\n    return nn.Flatten()\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "--run", "x", "--rehearse", "0"), f"--rehearse: {COUNT}, found '0'"),
        (("train", "--run", "x", "--threads", "0"), f"--threads: {COUNT}"),
        (("evaluate", "--model", "a.py:b", "--examples=-5"), f"--examples: {COUNT}"),
        (("tables", "--scale", "ci", "--artefact", "cvpr23_fig3"), "say generalist-bench figures"),
        (("figures", "--scale", "ci", "--artefact", ARTEFACT), "say generalist-bench tables"),
        (("tables", "--scale", "ci", "--artefact", ARTEFACT, "--grid", "."), "give the path of a file"),
        (("plan", "--scale", "ci", "--device-tflops", "0"), "expected a number above 0, found '0'"),
        (("plan", "--scale", "ci", "--device-tflops", "nan"), "expected a number above 0"),
        (("start",), "expected a command to start"),
        (("start", "--gpus", "x", "train"), "expected a number behind --gpus, found 'x'"),
        (("zygote", "x"), "expected the number of a socket"),
        (("audit", "nonsense"), "unrecognized arguments: nonsense"),
        (("fidelity", "nonsense"), "unrecognized arguments: nonsense"),
        (("meter", "nonsense"), "unrecognized arguments: nonsense"),
    ],
)
def test_a_mistake_on_the_command_line(words, message, tmp_path):
    done = command("harness", *words, cwd=tmp_path)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


CUDA = "CUDA out of memory. Tried to allocate 2.38 GiB. GPU 0 has a total capacity of 23.69 GiB of"


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: torch.empty(10**15), "can't allocate memory: you tried to allocate"),
        (lambda: np.empty(10**15), r"Unable to allocate 7\.11 PiB for an array"),
        (
            lambda: raised(torch.OutOfMemoryError(CUDA)),
            r"CUDA out of memory, tried to allocate 2\.38 GiB",
        ),
        (lambda: raised(RuntimeError(f"Traceback:\n{CUDA}")), r"CUDA out of memory, tried to allocate"),
        (lambda: raised(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED")), "CUDNN_STATUS_ALLOC"),
    ],
)
def test_a_lack_of_memory_is_one_sentence(make, found):
    with (
        pytest.raises(
            UserError, match=f"^expected enough memory for a batch, found {found}.*; lower it"
        ),
        enough_memory("a batch", "lower it"),
    ):
        make()
    with pytest.raises(RuntimeError, match="another"), enough_memory("a batch", "lower it"):
        raised(RuntimeError("another"))


def raised(error: Exception) -> None:
    raise error


def test_a_batch_too_large_for_the_device_says_which_number_to_lower(plan, tmp_path, monkeypatch):
    """A crop of a million pixels a side fits nowhere; nor do a network's features of four terabytes."""
    monkeypatch.chdir(tmp_path)
    run = run_of(plan, "nt")
    huge = dataclasses.replace(run.recipe, augment=Augment(0, False, random_resized_crop=10**6))
    spec = write_spec(dataclasses.replace(run, recipe=huge))
    monkeypatch.setattr(sys, "argv", ["train", "--spec", spec])
    with pytest.raises(UserError, match=r"memory for training on batches of 64 .*lower batch_size"):
        train.main()
    forward = "def forward(self, x):\n        y = x.flatten(1)[:, :10]\n"
    forward += "        return y if len(x) != 7 else x.new_zeros(7, 2**40)"
    net = f"{NET.replace('nn.Flatten', 'Wide')}\n\nclass Wide(nn.Module):\n    {forward}\n"
    (tmp_path / "net.py").write_text(net)
    words = ["--model", "net.py:build", "--data", "digits", "--scale", "ci", "--attacks", "NAT"]
    monkeypatch.setattr(sys, "argv", ["evaluate", *words, "--batch-size", "7"])
    with pytest.raises(UserError, match=r"an evaluation of 7 images at once, .*lower batch_size_of"):
        evaluate.main()


def test_of_many_names_the_nearest_three_are_shown():
    names = [f"digits-tiny-at-s{seed}-0123456789" for seed in range(100)]
    said = str(unknown("run", "no-such-thing", names, "scale ci"))
    assert "of 100 the nearest are" in said
    assert said.count("digits-") == 3


def test_weights_that_are_not_there(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Flatten()\n"
    )
    words = ["--model", "net.py:build", "--data", "digits", "--weights", "none.safetensors"]
    done = command("harness", "evaluate", *words, "--scale", "ci", cwd=tmp_path)
    assert done.returncode == 2
    assert "none.safetensors, found No such file" in done.stderr
    assert "give the path of a file that is there" in done.stderr


def test_a_stand_in_is_not_reported_as_the_set_that_was_asked_for(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Flatten()\n"
    )
    words = ["--model", "net.py:build", "--data", "cifar10", "--scale", "ci"]
    done = command("harness", "evaluate", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "expected cifar10, found its stand-in at scale ci, digits; add --scale paper" in done.stderr


def test_a_closed_pipe_is_no_error(tmp_path):
    words = f"{sys.executable} -m harness plan --runs --scale smoke | head -1"
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        words, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_a_command_whose_output_is_closed(tmp_path):
    words = f"{sys.executable} -m harness plan --runs --scale ci >&-"
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        words, shell=True, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rehearsal_longer_than_an_epoch_begins_it_again(plan, tmp_path):
    words = ["--run", run_of(plan, "at").id, "--rehearse", "6"]
    done = command(*TRAIN, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 6: " in done.stdout


def test_ctrl_c_is_one_line(plan, tmp_path):
    words = [sys.executable, "-m", *TRAIN, "--run", run_of(plan, "at").id, "--rehearse", "1000000"]
    environment = {**os.environ, **ENVIRONMENT}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert "step 1" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 128 + signal.SIGINT
    assert said == "error: expected to come to the end, found Ctrl-C; start the same command again.\n"


def test_a_tmpdir_too_long_for_a_socket_does_without_the_zygote(tmp_path, monkeypatch):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr(zygote.tempfile, "tempdir", str(folder))
    monkeypatch.delenv(zygote.ADDRESS, raising=False)
    zygote.launch()
    assert zygote.ADDRESS not in os.environ
    assert not list(folder.iterdir())


def test_without_a_tmpdir_there_is_no_zygote(monkeypatch):
    monkeypatch.setattr(zygote.tempfile, "tempdir", "/nonexistent")
    monkeypatch.delenv(zygote.ADDRESS, raising=False)
    zygote.launch()
    assert zygote.ADDRESS not in os.environ


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (8.6e6, "981 years"),
        (1.14e7, "1,300 years"),
        (100, "4.17 days"),
        (5, "5 hours"),
        (0.5, "30 minutes"),
        (0.01, "36 seconds"),
        (0, "-"),
    ],
)
def test_times_in_units_that_a_person_uses(hours, said):
    assert lasting(hours) == said


def test_a_plan_says_what_it_measures_before_it_does(tmp_path):
    done = command("harness", "plan", "--scale", "ci", "--device", "cpu", cwd=tmp_path, check=True)
    first, *_, last = done.stderr.splitlines()
    assert first == "measuring    0 %  ? left  tiny, images of 1x8x8"
    assert last.startswith("measuring  100 %")
    assert re.search(r"^training: .* (seconds|minutes|hours) on cpu", done.stdout, re.MULTILINE)
    assert "e+" not in done.stdout
