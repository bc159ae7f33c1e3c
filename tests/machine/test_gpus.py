"""Jobs side by side get GPUs of their own; without any, by what they see in CUDA_VISIBLE_DEVICES."""

import os
import signal
import subprocess
import sys
import uuid
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from conftest import ARTEFACT, ROOT, run_of, said
from test_parallel import descendants
from test_zygote import launched, wait_until

from harness.core.config import read_grid
from harness.core.errors import UserError
from harness.jobs.start import ADDRESS
from harness.machine.gpus import ALLOCATION, VISIBLE, _folder, devices, reserve

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GPUs are shared out on Linux")
CLAIM = (
    "import os, sys; from harness.machine.gpus import reserve; locks = reserve(int(sys.argv[1])); "
    "print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"
)


@pytest.fixture
def pool(monkeypatch):
    """Two devices that nobody else on this machine has, by name."""
    names = [f"GPU-{uuid.uuid4()}" for _ in range(2)]
    monkeypatch.setenv(VISIBLE, ",".join(names))
    monkeypatch.delenv(ALLOCATION, raising=False)
    yield names
    for path in _folder().glob("*GPU-*"):
        if any(path.name.endswith(name) for name in names):
            path.unlink()


@pytest.fixture
def start():
    started = []

    def go(*words: str, **environment: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # a line of either kind will come, so no test waits in vain
            text=True,
        )
        started.append(process)
        return process

    yield go
    for process in started:
        process.kill()
        process.wait()


def test_devices_are_the_users_or_the_machines(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert devices({}, tmp_path) == ["0", "1", "2"]  # CUDA counts what there is
    assert devices({}, tmp_path / "none") == []
    assert devices({VISIBLE: "2,3"}, tmp_path) == ["2", "3"]
    assert devices({VISIBLE: "1,-1,0"}, tmp_path) == ["1"]
    assert devices({VISIBLE: ""}, tmp_path) == []


def test_where_there_is_nothing_to_choose_nothing_happens(pool, monkeypatch):
    before = os.environ[VISIBLE]
    assert reserve(0) == []
    monkeypatch.setenv(ALLOCATION, "17")
    assert reserve(2) == []
    assert os.environ[VISIBLE] == before
    monkeypatch.setenv(VISIBLE, "")
    assert reserve(1) == []


def test_distinct_devices_and_the_third_waits_for_a_killed_one(pool, start):
    one, other = (start("-c", CLAIM, "1") for _ in range(2))
    seen = [process.stdout.readline().strip() for process in (one, other)]
    assert sorted(seen) == sorted(pool)
    third = start("-c", CLAIM, "1")
    assert "waiting for 1 of the GPUs" in third.stdout.readline()
    one.kill()
    assert third.stdout.readline().strip() == seen[0]


def test_a_run_of_two_processes_takes_two_or_none(pool, start):
    one = start("-c", CLAIM, "1")
    assert one.stdout.readline().strip() in pool
    both = start("-c", CLAIM, "2")
    assert "waiting for 2" in both.stdout.readline()
    other = start("-c", CLAIM, "1")
    assert other.stdout.readline().strip() in pool  # the one that was free is not kept
    for process in (one, other):
        process.kill()
    assert both.stdout.readline().strip() == ",".join(pool)


def test_more_than_there_are_is_all_there_are(pool, start):
    assert start("-c", CLAIM, "3").stdout.readline().strip() == ",".join(pool)


def test_an_allocation_of_slurms_is_a_pool_of_its_own(pool, start):
    here, there = start("-c", CLAIM, "1"), start("-c", CLAIM, "1", SLURM_JOB_ID="17")
    assert here.stdout.readline() == there.stdout.readline()


def test_a_forked_job_holds_its_device_to_the_end(plan, pool, start, tmp_path, monkeypatch):
    """Also while its client is dead already: it may still be computing there."""
    address, server = launched()
    run = run_of(plan, "nt").id
    words = ["train", "--scale", "ci", "--run", run, "--rehearse", "1000000", "--device", "cpu"]
    monkeypatch.chdir(tmp_path)
    client = start("-m", "harness", "start", "--gpus", "2", *words, **{ADDRESS: address})
    assert "step 1" in client.stdout.readline()
    (job,) = descendants(server.pid)
    os.kill(job, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{job}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    client.kill()
    client.wait()
    next_one = start("-c", CLAIM, "1")
    try:
        assert "waiting" in next_one.stdout.readline()
    finally:
        os.kill(job, signal.SIGCONT)  # it notices, and ends
    assert next_one.stdout.readline().strip() == pool[0]
    server.stdin.close()
    assert server.wait(10) == 0


SEEN = """
from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from baselines.nt import NT


@dataclass(frozen=True)
class Seen(NT):
    number: int = 0

    @property
    def slug(self):
        return f"seen{self.number}"

    def __call__(self, model, batch, clock, generator):
        with Path(f"{self.slug}.txt").open("a") as file:
            print(os.environ["CUDA_VISIBLE_DEVICES"], time.time(), file=file)
        time.sleep(0.1)
        return super().__call__(model, batch, clock, generator)


METHODS = {"seen": Seen}
"""


def test_snakemake_shares_out_the_users_devices(tmp_path):
    """Four trainings on the two devices 2 and 3: two at a time, never both on one."""
    (tmp_path / "seen.py").write_text(SEEN)
    names = [f"seen{number}" for number in range(4)]
    content = read_grid()
    content["registry"] = "seen:METHODS"
    content["methods"] = {
        name: {"method": "seen", "optim": "natural", "number": number}
        for number, name in enumerate(names)
    }
    content["roles"], content["labels"] = {"ours": names[0], "undefended": names[1]}, {}
    table = {"methods": names, "networks": ["resnet18"], "seeds": 1}
    content["artefacts"] = {ARTEFACT: content["artefacts"][ARTEFACT] | table}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    words = f"-m snakemake --snakefile {ROOT}/Snakefile --cores 4 --resources gpu=2 --until train"
    # No such devices are there, so the jobs compute on the CPU, which would ask for none.
    words += f" --set-resources train:gpu=1 --config scale=ci device=cpu grid=grid.yaml -- {ARTEFACT}"
    own = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "OMP_NUM_THREADS": "1", VISIBLE: "2,3"}
    done = subprocess.run(
        [sys.executable, *words.split()],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, said(done)
    spans = []
    for name in names:
        rows = [line.split() for line in (tmp_path / f"{name}.txt").read_text().splitlines()]
        assert len({device for device, _ in rows}) == 1
        spans.append((float(rows[0][1]), float(rows[-1][1]), rows[0][0]))
    assert {device for _, _, device in spans} == {"2", "3"}
    together = [(a, b) for a, b in combinations(spans, 2) if a[0] < b[1] and b[0] < a[1]]
    assert together, "never two at once"
    assert all(one[2] != other[2] for one, other in together)
    for begin, _, _ in spans:
        assert sum(first <= begin < last for first, last, _ in spans) <= 2


def test_the_locks_are_where_nobody_else_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "own"))
    assert _folder() == tmp_path / "own" / "generalist-gpus"
    assert _folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert _folder() == tmp_path / "cache" / "generalist-gpus"
    _folder().rmdir()
    (tmp_path / "cache" / "generalist-gpus").symlink_to(tmp_path)
    with pytest.raises(UserError, match="a folder of your own"):
        _folder()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "own"))
    _folder().chmod(0o777)
    with pytest.raises(UserError, match="where others may write"):
        _folder()
