"""Which device a command takes, how it computes there, and a torchvision of any build."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, command

from harness.core.errors import UserError
from harness.jobs.check import PRETEND
from harness.machine.device import Arithmetic, pick_device, tf32
from harness.machine.gpus import VISIBLE

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@needs_no_gpu
def test_a_gpu_that_was_given_and_cannot_be_used_is_an_error(monkeypatch):
    monkeypatch.setenv(VISIBLE, "3")
    for wanted in ("auto", "cuda"):
        with pytest.raises(UserError, match=r"compute on GPU 3, .* found .*; install .* --device cpu"):
            pick_device(wanted)
    assert pick_device("cpu").type == "cpu"


@needs_no_gpu
def test_without_a_gpu_auto_takes_what_there_is(monkeypatch):
    monkeypatch.setenv(VISIBLE, "")  # what a user sets who wants no GPU
    assert pick_device("auto").type in ("mps", "cpu")
    with pytest.raises(UserError, match="expected a device of this machine"):
        pick_device("cuda")


@needs_no_gpu
def test_the_check_of_a_gpu_says_that_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv(VISIBLE, "")
    done = command("harness", "check", cwd=tmp_path)
    assert done.returncode == 2
    assert "expected a GPU on this machine, found none; " in done.stderr
    assert "--pretend" in done.stderr


def test_the_pretend_gpu_says_what_it_lacks():
    words = [sys.executable, str(PRETEND)]
    done = subprocess.run(words, env={**os.environ, "PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == (
        "SKIPPED the pretend device: it is compiled with g++, and there is none: apt install g++\n"
    )


def flags() -> tuple[bool, ...]:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    deterministic = torch.are_deterministic_algorithms_enabled()
    return cudnn.allow_tf32, products.allow_tf32, cudnn.benchmark, deterministic


@pytest.mark.parametrize(
    ("arithmetic", "wanted"),
    [
        (Arithmetic(), (True, False, True, False)),  # torch's defaults, and fixed shapes
        (Arithmetic(tf32=True), (True, True, True, False)),
        (Arithmetic(tf32=False), (False, False, True, False)),
        (Arithmetic(deterministic=True), (True, False, False, True)),
    ],
)
def test_arithmetic_holds_for_a_block(arithmetic, wanted):
    before = flags()
    with arithmetic.applied():
        assert flags() == wanted
        with tf32(False):
            assert flags() == (False, False, *wanted[2:])
        assert flags() == wanted
    assert flags() == before


def test_an_operation_that_is_not_deterministic_is_one_sentence():
    def put() -> None:
        torch.zeros(4).put_(torch.tensor([0, 1]), torch.ones(2))

    refused = pytest.raises(UserError, match=r"found put_ does not have .*; take `deterministic` out")
    with refused, Arithmetic(deterministic=True).applied():
        put()
    with Arithmetic().applied():
        put()


# A GPU machine's torchvision brings compiled operators, among them `nms`; declaring that again in C++
# ends the process. Here their library is replaced by the same declarations.
MATCHING = """
import torch

plain, kept = type(torch.ops).load_library, []

def load(self, path):
    if not path.endswith("_C.so"):
        return plain(self, path)
    library = torch.library.Library("torchvision", "FRAGMENT")
    pools = [f"{kind}_{what}" for kind in ("roi", "ps_roi") for what in ("align", "pool")]
    pools.append("deform_conv2d")
    for name in ["nms", "qnms", "qroi_align", *pools, *(f"_{name}_backward" for name in pools)]:
        library.define(name + "(Tensor x) -> Tensor")
    library.define("_cuda_version() -> int")
    library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    kept.append(library)

type(torch.ops).load_library = load
from harness.models.networks import new_model
print(sum(p.numel() for p in new_model("resnet50", 3, 1000, 0).parameters()))
"""


def test_a_torchvision_whose_operators_load_is_left_alone():
    done = subprocess.run([sys.executable, "-c", MATCHING], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "25557032\n"
