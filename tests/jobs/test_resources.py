"""What jobs ask of a cluster: by the bill, more at each attempt, and cheaply."""

import dataclasses
import importlib.util
import re

import pytest
import yaml
from conftest import ARTEFACT, ROOT, run_of, said, snakemake

from harness.core.errors import UserError
from harness.grid.plan import Plan
from harness.jobs.bill import kind, known_networks
from harness.jobs.meter import network
from harness.jobs.resources import LEAST_MINUTES, MAX_MINUTES, SAFETY, Machine, network_of, rate_of

PROFILE = ROOT / "workflow" / "profiles" / "slurm"
WITH_PLUGIN = importlib.util.find_spec("snakemake_executor_plugin_slurm") is not None


@pytest.fixture(scope="module")
def paper() -> Plan:
    return Plan.read("paper")


@pytest.mark.parametrize("scale", ["ci", "paper"])
def test_the_measured_networks_are_still_right(scale):
    run = run_of(Plan.read(scale), "at")
    assert network(run) == known_networks()[kind(run)] == network_of(run)


def test_minutes_are_work_by_speed(paper):
    """AT: 120 epochs of 49,000 images with 10 input gradients and an update, a choice per epoch."""
    run, price = run_of(paper, "at"), network_of(run_of(paper, "at")).price
    images = 120 * 49_000 * (10 * price.input_gradients + price.updates)
    judged = 120 * 1000 * (2 * price.forward + 20 * price.input_gradients)
    minutes = SAFETY * (images + judged) / 20e12 / 60
    found = Machine(tflops=20.0).train(paper, run.id).minutes
    assert found == LEAST_MINUTES + int(minutes)
    assert found < Machine(tflops=10.0).train(paper, run.id).minutes


@pytest.mark.parametrize("job", ["train", "evaluate"])
def test_each_attempt_asks_for_twice_as_much_within_bounds(plan, job):
    run = run_of(plan, "at").id
    ask = [getattr(Machine(), job)(plan, run, attempt) for attempt in range(1, 12)]
    assert [request.minutes / ask[0].minutes for request in ask[:4]] == [1, 2, 4, 8]
    assert ask[-1].minutes == MAX_MINUTES
    assert [request.megabytes / ask[0].megabytes for request in ask[:4]] == [1, 2, 4, 4]
    assert getattr(Machine(max_minutes=20), job)(plan, run, 2).minutes == 20


def test_gpus_where_one_may_be_wanted():
    plan = Plan.read("ci")  # its own: a run is put into it
    serial, parallel = (run_of(plan, slug) for slug in ("at", "generalist_d_nt_linf"))
    method = dataclasses.replace(parallel.method, parallel=True)
    parallel = dataclasses.replace(parallel, method=method)
    plan.runs[parallel.id] = parallel
    for device, gpus in {"auto": 1, "cuda": 1, "cpu": 0, "mps": 0, "cuda:1": 0}.items():
        assert Machine(device).train(plan, serial.id).gpus == gpus
        assert Machine(device).evaluate(plan, serial.id).gpus == gpus
        assert Machine(device).train(plan, parallel.id).gpus == 2 * gpus


def test_activations_count_where_the_host_computes(paper):
    run = run_of(paper, "at")
    on_cpu, on_gpu = (Machine(device).evaluate(paper, run.id) for device in ("cpu", "cuda"))
    batch = 500 * network_of(run).kept_bytes / 1e6
    assert on_cpu.megabytes > batch > 2000
    assert on_gpu.megabytes < 10_000


def test_what_was_never_measured_is_billed_as_the_costliest(plan, paper):
    run = run_of(plan, "at")
    widest = known_networks()["tiny_wide", (1, 8, 8)]
    assert network_of(dataclasses.replace(run, network="mine")) == widest
    objective = dataclasses.replace(run.method.objective)
    threat = dataclasses.replace(objective.threat, steps=13)
    method = dataclasses.replace(run.method, objective=dataclasses.replace(objective, threat=threat))
    unmeasured = rate_of(dataclasses.replace(run, method=method))
    assert unmeasured.step.all_forward > rate_of(run_of(paper, "at")).step.all_forward


@pytest.mark.parametrize("entry", [{"device_tflops": "fast"}, {"max_minutes": 0}, {"max_minutes": -1}])
def test_a_bad_entry_is_one_sentence(entry):
    with pytest.raises(UserError, match=f"expected a number above 0 as {next(iter(entry))}, found"):
        Machine.of(entry)
    assert Machine.of({"device_tflops": "20", "max_minutes": "60"}) == Machine("auto", 20.0, 60)


def test_the_profile_is_read_and_harmless(grid, tmp_path):
    """The executor's own settings are left out where it is not installed (make test-slurm has it)."""
    content = yaml.safe_load((PROFILE / "config.yaml").read_text())
    plugins = [key for key in content if key.startswith("slurm-") or key == "executor"]
    if not WITH_PLUGIN:
        content = {key: value for key, value in content.items() if key not in plugins}
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "config.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "profile" / "partitions.yaml").write_text((PROFILE / "partitions.yaml").read_text())
    done = snakemake("-n", "--profile", str(tmp_path / "profile"), ARTEFACT, cwd=tmp_path, grid=grid)
    assert done.returncode == 0, said(done)
    train = re.search(r"rule train:.*?resources: (.*?)\n", said(done), flags=re.DOTALL)[1]
    for part in (f"runtime={LEAST_MINUTES}", "mem_mb=3000", "gpu=0", "--signal=TERM@120", "nodes=1"):
        assert part in train


def test_the_partitions_of_the_profile_take_the_longest_job():
    partitions = yaml.safe_load((PROFILE / "partitions.yaml").read_text())["partitions"]
    for limits in partitions.values():
        days = re.fullmatch(r"(\d+)d", limits["max_runtime"])[1]
        assert 24 * 60 * int(days) >= MAX_MINUTES
