"""How jobs find the device, what a step makes the CPU wait for, and the lab's own first command."""

import json
from pathlib import Path

import pytest
import torch
from commands import snakemake_words
from conftest import ROOT, command, run_of, said
from pretend_cuda import NAME
from rehearsal import CUDA

from benchmarks.waits import counted_steps
from harness.core import paths
from harness.core.errors import UserError
from harness.machine.device import Arithmetic, pick_device


def test_auto_takes_it():
    assert pick_device("auto") == CUDA


def test_a_gpu_that_cannot_compute_is_an_error(monkeypatch):
    """As a card for which this torch has no kernels."""

    def refuse(*_, **__):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nmore")

    monkeypatch.setattr(torch.Tensor, "add_", refuse)
    for wanted in ("auto", "cuda"):
        with pytest.raises(UserError, match=r"found CUDA error: no kernel image .* device; install"):
            pick_device(wanted)
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize(
    ("arithmetic", "last"),
    [(Arithmetic(), True), (Arithmetic(tf32=False), False), (Arithmetic(amp=True, tf32=False), True)],
)
def test_convolutions_on_tensor_cores_get_their_layout(arithmetic, last):
    assert arithmetic.channels_last(CUDA) == last
    assert arithmetic.as_json(CUDA)["tf32_convolutions"] == (arithmetic.tf32 is None)


def test_a_step_waits_for_its_loss_and_its_attacks_check():
    found = counted_steps()
    print(found)
    assert found["nt"][1] == 1
    for slug in ("at", "fat", "agr", "trades6", "part", "msd"):
        assert found[slug][1] <= 2, (slug, found[slug])


def test_jobs_forked_by_snakemake_use_it(plan, tmp_path):
    run = run_of(plan, "nt").id
    target = str(paths.records(Path("results"), plan.evaluations[run].id))
    grid = ROOT / "config" / "grid.yaml"
    words = snakemake_words("--resources", "gpu=1", grid=grid, device="auto")
    done = command(*words, "--", target, cwd=tmp_path)
    logs = "".join(path.read_text() for path in (tmp_path / "results" / "logs").rglob("*.log"))
    assert done.returncode == 0, said(done) + logs
    about = json.loads(paths.description(tmp_path / "results", run).read_text())
    assert about["device"] == NAME


def test_the_check_of_a_machine_passes(tmp_path):
    """What a lab runs first; on a real card at scale paper."""
    done = command("harness", "check", "--scale", "ci", cwd=tmp_path)
    print(done.stdout)
    assert done.returncode == 0, said(done)
    assert " 0 failed" in done.stdout
    assert "left out" not in done.stdout
    assert "device_tflops=" in done.stdout
