"""Jobs forked from a process that has torch: the plain command is the oracle."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import descendants
from conftest import ROOT, command, run_of

from harness.core import paths
from harness.core.process import CODE
from harness.jobs import zygote
from harness.jobs.start import ADDRESS, STARTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the zygote is for Linux")
WITHOUT_TORCH = 1.0  # seconds of CPU: importing torch and what a training needs takes more than two


def launched() -> tuple[str, subprocess.Popen]:
    """A zygote for this process, as Snakemake starts one; the address is left to the tests."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    zygote.launch()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    return os.environ.pop(ADDRESS), zygote._launched[-1]


@pytest.fixture(scope="module")
def address():
    address, process = launched()
    yield address
    process.stdin.close()  # as if Snakemake ended
    assert process.wait(10) == 0
    assert not Path(address).parent.exists()


def start(address: str, *words: str, cwd: Path) -> subprocess.CompletedProcess:
    words = ("-m", "harness", "start", *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), ADDRESS: address, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True
    )


def checksum(folder: Path, run) -> str:
    return json.loads(paths.description(folder / "results", run.id).read_text())["sha256"]


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_until(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_forked_job_makes_what_the_plain_command_makes(plan, address, tmp_path):
    run = run_of(plan, "at")
    words = ["--scale", "ci", "--run", run.id]
    plain, forked = tmp_path / "plain", tmp_path / "forked"
    plain.mkdir()
    forked.mkdir()
    command("harness", "train", *words, cwd=plain, check=True)
    began = cpu_of_children()
    done = start(address, "train", *words, cwd=forked)
    assert cpu_of_children() - began < WITHOUT_TORCH  # or it was not forked at all
    assert done.returncode == 0, done.stderr
    assert "100 %" in done.stderr
    assert checksum(plain, run) == checksum(forked, run)
    done = start(address, "evaluate", *words, cwd=forked)
    assert done.returncode == 0, done.stderr
    assert list((forked / "results" / "records").glob(f"{run.id}-*.npz"))


def test_errors_and_exit_codes_come_back(address, tmp_path):
    failed = start(address, "train", "--scale", "ci", "--run", "digits-tiny-nt", cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: expected a known run")
    assert start(address, "train", "--nonsense", cwd=tmp_path).returncode == 2
    unknown = start(address, "trian", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "did you mean 'train'" in unknown.stderr


def long_job(address: str, run, cwd: Path) -> subprocess.Popen:
    words = ["train", "--scale", "ci", "--run", run.id, "--rehearse", "1000000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), ADDRESS: address}
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "start", *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "step 1" in process.stdout.readline()
    return process


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_client_kills_its_job(plan, how, tmp_path):
    address, server = launched()
    client = long_job(address, run_of(plan, "nt"), tmp_path)
    assert len(descendants(server.pid)) == 1
    client.send_signal(how)
    client.communicate()
    wait_until(lambda: not descendants(server.pid), 10)
    server.stdin.close()
    assert server.wait(10) == 0


def test_a_killed_job_is_a_failed_client(plan, tmp_path):
    address, server = launched()
    client = long_job(address, run_of(plan, "nt"), tmp_path)
    os.kill(descendants(server.pid)[0], signal.SIGKILL)
    _, said = client.communicate()
    assert client.returncode == 1
    assert "found that it was killed" in said
    server.stdin.close()


def test_without_a_zygote_the_job_runs_by_itself(plan, tmp_path):
    run = run_of(plan, "nt")
    words = ["train", "--scale", "ci", "--run", run.id, "--rehearse", "1"]
    gone, server = launched()
    server.kill()
    server.wait()
    shutil.rmtree(Path(gone).parent)
    assert start("", *words, cwd=tmp_path).returncode == 0
    assert start(gone, *words, cwd=tmp_path).returncode == 0
    with socket.socket(socket.AF_UNIX) as listener:  # one that ends without an answer
        listener.bind(str(tmp_path / "deaf"))
        listener.listen()
        pid = os.fork()
        if pid == 0:
            listener.accept()[0].close()
            os._exit(0)
        done = start(str(tmp_path / "deaf"), *words, cwd=tmp_path)
        os.waitpid(pid, 0)
    assert done.returncode == 0
    assert "step 1" in done.stdout


@pytest.mark.parametrize("gpus", [[], ["--gpus", "0"], ["--gpus", "1"]])
def test_without_a_zygote_sigterm_stops_the_job(gpus, tmp_path):
    """Also a job that has asked for GPUs first, as every job of the workflow does."""
    (tmp_path / "stopped.py").write_text(
        "import os, signal\ndef main(): os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    code = (
        "from harness import cli; from harness.core.commands import COMMANDS; "
        "COMMANDS['stopped'] = 'stopped'; cli.main()"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", ADDRESS: ""}
    words = [sys.executable, "-c", code, "start", *gpus, "stopped"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == CODE
    assert "found SIGTERM" in done.stderr


def test_a_job_of_another_control_group_is_refused(address, tmp_path):
    request = {"words": ["plan"], "folder": str(tmp_path), "environment": dict(os.environ)}
    content = json.dumps({**request, "control_group": "0::/slurm/job_1"}).encode()
    with socket.socket(socket.AF_UNIX) as line, (tmp_path / "log").open("w") as log:
        line.connect(address)
        socket.send_fds(line, [len(content).to_bytes(8, "big")], [log.fileno()] * 3)
        line.sendall(content)
        assert line.recv(1) != STARTED
    assert (tmp_path / "log").read_text() == ""


def test_two_live_side_by_side_and_each_ends_with_its_maker(tmp_path):
    code = (
        "from harness.jobs import zygote, start; import os; zygote.launch(); "
        "print(zygote._launched[0].pid, os.environ[start.ADDRESS], flush=True); input()"
    )
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    found = [maker.stdout.readline().split() for maker in makers]
    addresses = [address for _, address in found]
    assert addresses[0] != addresses[1]
    makers[0].kill()
    wait_until(lambda: not Path(f"/proc/{found[0][0]}").exists(), 10)
    assert not Path(addresses[0]).parent.exists()
    began = cpu_of_children()
    failed = start(addresses[1], "train", "--scale", "ci", "--run", "none", cwd=tmp_path)
    assert failed.returncode == 2
    assert cpu_of_children() - began < WITHOUT_TORCH
    makers[1].kill()
    wait_until(lambda: not Path(f"/proc/{found[1][0]}").exists(), 10)
