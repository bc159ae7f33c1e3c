"""The passes and hours that a plan will take."""

import dataclasses
import re
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from conftest import L2, LINF, ROOT, run_of

from baselines.at import AT
from baselines.fat import FAT
from baselines.nt import NT
from baselines.trades import TRADES
from generalist.generalist import Generalist
from harness.attacks.attack import Threat
from harness.attacks.autoattack import Cascade, Component
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.attacks.work import Work
from harness.core.config import scales
from harness.core.errors import UserError
from harness.data import count
from harness.evaluation.probing import evaluate_batch
from harness.grid.columns import Probe
from harness.grid.plan import Plan
from harness.jobs import bill, meter
from harness.jobs.bill import kind, known_networks, known_rates, of_evaluation, of_training, shape, text
from harness.jobs.meter import rate, seconds
from harness.models.networks import new_model
from harness.training.learner import Optim, Single

OPTIM = Optim(lr=0.05, weight_decay=5e-4)
PAPERS_TFLOPS, DATA_SHEET = 7.4, 35.6  # of an RTX 3090, as docs/costs.md says
COSTS = (ROOT / "docs" / "costs.md").read_text()
LINF_7 = Threat(LINF.ball, LINF.step, 7)


@pytest.mark.parametrize(
    ("objective", "work"),
    [
        (NT(), Work(updates=1)),
        (AT(LINF), Work(input_gradients=3, updates=1)),
        (AT(LINF_7), Work(input_gradients=7, updates=1)),
        (TRADES(LINF_7, beta=6.0), Work(forward=2, input_gradients=7, updates=2)),
    ],
)
def test_passes_of_a_step(objective, work):
    found = rate(Single(objective, OPTIM), parents=0)
    assert found.step == work
    assert not found.at_most
    assert found.step.all_forward == work.forward + found.step.backward
    assert found.step.backward == work.input_gradients + work.updates


def test_an_attack_that_lets_fooled_images_go_is_billed_in_full_and_says_so():
    found = rate(Single(FAT(LINF_7), OPTIM), parents=0)
    assert found.step == Work(input_gradients=7, updates=1)
    assert found.at_most


def test_generalist_costs_its_learners_in_one_process_or_many():
    learners = [Single(objective, OPTIM) for objective in (AT(LINF_7), NT(), AT(L2))]
    together = Generalist(tuple(learners), shares=(0.5, 0.5), parallel=True)
    found = rate(together, parents=0).step
    assert found == sum((rate(learner, 0).step for learner in learners), Work())
    assert shape(together) == shape(together.serial)


def test_what_changes_no_pass_changes_no_shape():
    one = Single(TRADES(LINF, beta=6.0), OPTIM)
    other = Single(TRADES(Threat(Ball("linf", Fraction(1, 9)), LINF.step, 3), beta=1.0), OPTIM)
    assert shape(one) == shape(dataclasses.replace(other, optim=Optim(0.1, 0.0)))
    assert shape(one) != shape(Single(TRADES(LINF_7, beta=6.0), OPTIM))


def unbreakable() -> torch.nn.Module:
    model = new_model("tiny", channels=1, num_classes=10, seed=0).eval()
    with torch.no_grad():
        model.linear.bias[0] += 20
    return model


BALL = Ball("linf", Fraction(8, 255))
CHECKS = 20  # forward passes in which AutoAttack inspects the network


@pytest.mark.parametrize(
    ("attack", "uncounted"),
    [(PGD(BALL, Fraction(2, 255), 5), 0)]
    + [
        (Component(BALL, name, steps=6, targets=3, queries=30), CHECKS)
        for name in ("apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square")
    ],
)
def test_passes_of_an_attack(attack, uncounted):
    x, y = torch.rand(3, 1, 8, 8), torch.zeros(3, dtype=torch.long)
    probe = Probe("digits", 3, attack, batch_size=3)
    record = evaluate_batch(unbreakable(), probe, x, y, torch.Generator().manual_seed(0))
    work = of_evaluation((probe,))
    assert record.backward_examples == work.backward
    assert 0 <= record.forward_examples - work.all_forward <= uncounted * len(x)


def test_no_more_targets_than_other_classes():
    attack = Component(BALL, "apgd-t", steps=10, targets=9)
    assert attack.work(classes=4).input_gradients == 3 * 11


def test_the_longest_of_a_family_of_pgds_pays_for_all():
    probes = [Probe("digits", 10, PGD(BALL, Fraction(1, 255), k), 10) for k in (20, 100)]
    natural = Probe("digits", 10, None, 10)
    assert of_evaluation((*probes, natural)) == Work(forward=30, input_gradients=1000)


def test_a_run_is_its_step_times_its_images_and_epochs(plan):
    run = run_of(plan, "at")
    own = rate(run.method, parents=0)
    assert of_training(run, own) == own.step * (256 * 3)


def test_counts_need_no_data():
    splits = ("train", "validation", "train+validation", "test")
    assert [count("cifar10", split) for split in splits] == [49_000, 1_000, 50_000, 10_000]
    assert count("digits", "train") == 1168


def test_a_cascade_takes_the_passes_of_its_components():
    cascade = Cascade.standard(BALL, steps=5, targets=2, queries=7)
    assert cascade.work(10) == Work(forward=10 + 7, input_gradients=6 + 12 + 10)


@pytest.mark.parametrize("scale", scales())
def test_the_bill_names_every_model(scale):
    plan = Plan.read(scale)
    assert f"{len(plan.runs)} models" in text(plan, meter.rates(plan), None)


def test_the_papers_minutes_are_the_tflops_that_the_bill_names():
    """397 minutes of Generalist (CVPR 2023, Table 4): the anchor of docs/costs.md."""
    plan = Plan.read("paper")
    (serial,) = (
        row for row in plan.artefacts["cvpr23_table4"].rows if row.method.endswith("_linf_serial")
    )
    run = plan.run(serial.runs[0])
    work = of_training(run, known_rates()[shape(run.method)])
    tflops = work.at(known_networks()[kind(run)].price) / 1e12 / (397 * 60)
    assert round(tflops, 1) == PAPERS_TFLOPS
    assert 0.2 < PAPERS_TFLOPS / DATA_SHEET < 0.21  # "a fifth"
    assert "7.4 TFLOPS, of 35.6 on the data sheet" in COSTS


@pytest.fixture(scope="module")
def paper_hours() -> tuple[Plan, dict]:
    plan = Plan.read("paper")
    prices, _ = meter.prices(plan, "cpu", PAPERS_TFLOPS)
    return plan, bill.costs(plan, known_rates(), prices)


def test_an_artefact_costs_its_runs_with_their_parents_and_shared_runs_once(paper_hours):
    plan, hours = paper_hours
    lines = [line.split() for line in bill.by_artefact(plan, hours, "a GPU").splitlines()]
    found = {name: rest for name, *rest in filter(None, lines) if name in plan.artefacts}
    assert list(found) == list(plan.artefacts)
    table = plan.artefacts["plusplus_table1"]
    assert any(plan.run(run).parents for run in table.runs)  # RMC's
    needed = bill.with_parents(plan, table.runs)
    trained = [*needed, *bill.trunks_of(plan, needed)]
    assert len(trained) > len(needed)  # AT until t', of which the Generalists are
    alone = sum(hours[run][0][2] for run in trained) + sum(hours[run][1][2] for run in table.runs)
    assert found["plusplus_table1"][:2] == [str(len(needed)), bill.number(alone)]
    assert found["cvpr23_fig1"][2] == "0"  # Table 1a, above it, has all of its models
    assert float(found["cvpr23_fig1"][1]) > 100
    added = sum(float(rest[2].replace(",", "")) for rest in found.values())
    whole = sum(own[:, 2].sum() for own in hours.values())
    assert added == pytest.approx(whole, rel=1e-3)
    assert f"{whole / 24:,.0f} GPU-days, {whole / 96:,.0f} days on four GPUs" in bill.text(
        plan, known_rates(), meter.prices(plan, "cpu", PAPERS_TFLOPS)[0], "7.4 TFLOPS"
    )
    learners = plan.artefacts["zipper_fig5"]  # a figure of training: nothing is evaluated for it
    assert found["zipper_fig5"][1] == bill.number(hours[learners.runs[0]][0][2])


def test_the_costs_that_the_documents_print_are_the_bill_s(paper_hours):
    """If it fails: `generalist-bench plan --scale paper --artefacts --device-tflops 7.4`."""
    plan, hours = paper_hours
    lines = [line.split() for line in bill.by_artefact(plan, hours, "a GPU").splitlines()]
    computed = {name: rest for name, *rest in filter(None, lines) if rest[0].isdigit()}
    rows = re.findall(r"^\| `?(\w+)`? \| (\d+) \| ([\d.,]*) \| ([\d.,]+) \|", COSTS, re.MULTILINE)
    assert len(rows) > 15
    for name, models, alone, days in rows:
        hours_alone = computed[name][-1 if name == "all" else 1]
        assert [models, alone or hours_alone] == [computed[name][0], hours_alone]
        assert days == bill.number(float(hours_alone.replace(",", "")) / 96), name


def test_a_method_that_was_never_measured_is_measured_when_asked_for(plan, monkeypatch):
    own = shape(run_of(plan, "at").method)
    known = {key: rate for key, rate in known_rates().items() if key != own}
    monkeypatch.setattr(bill, "known_rates", lambda: known)
    assert meter.rates(plan)[own].step == known_rates()[own].step


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_measured_is_said_first_and_what_is_known_not_at_all(terminal, capsys, monkeypatch):
    plan = Plan.read("ci")  # other tests ask the common one for methods that no artefact has
    meter.rates(plan)
    meter.prices(plan, "cpu", tflops=20)
    assert capsys.readouterr().err == ""
    during = []
    monkeypatch.setattr(meter, "seconds", lambda *_: during.append(capsys.readouterr().err))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    meter.prices(Plan.read("smoke"), "cpu", tflops=None)
    redraw, end = ("\r\x1b[K", "") if terminal else ("", "\n")
    assert during[0] == f"{redraw}measuring    0 %  ? left  tiny, images of 1x8x8{end}"
    assert "tiny_wide, images of 1x8x8" in during[-1]
    assert capsys.readouterr().err == f"{redraw}measuring  100 %  0:00 left  \n"


@pytest.mark.parametrize("tflops", [0, -1, float("nan")])
def test_a_speed_is_above_0(plan, tflops):
    with pytest.raises(UserError, match=r"TFLOPS above 0, found .*; write --device-tflops 20"):
        meter.prices(plan, "cpu", tflops)


def test_a_quick_network_is_timed_a_few_times(plan):
    """Rising sizes, then a whole batch three times: what is left of the allowed time is not spent."""
    sizes = []

    def note_size(layer, inputs):
        if isinstance(layer, torch.nn.Linear):
            sizes.append(len(inputs[0]))

    note = torch.nn.modules.module.register_module_forward_pre_hook(note_size)
    with note:
        work = seconds(run_of(plan, "nt"), torch.device("cpu"), budget=60.0)
    assert 0 < work.forward < work.updates
    assert sizes.count(max(sizes)) <= 12
    assert len(sizes) < 60


@pytest.mark.parametrize("slug", ["at", "trades6", "generalist_t", "fat"])
def test_the_measured_passes_are_still_right(plan, slug):
    method = run_of(plan, slug).method
    assert known_rates()[shape(method)] == rate(method, parents=0)


@pytest.mark.parametrize("option", ["--no-calibration", "--runs"])
def test_without_calibration_no_torch(option):
    """Unless a method is new: torch measures its passes (generalist-bench meter keeps them)."""
    if not {shape(run.method) for run in Plan.read("paper").runs.values()} <= known_rates().keys():
        pytest.skip("docs/passes.csv lacks a method")
    code = (
        f"import sys; sys.argv = ['plan', '--scale', 'paper', '{option}']; import harness.jobs.plan; "
        "harness.jobs.plan.main(); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert "models, " in done.stdout


def test_operations_of_resnet18():
    """A forward pass takes 0.56 G multiply-adds, as the papers of the architecture say."""
    run = run_of(Plan.read("paper"), "at")
    price = meter.network(run).price
    assert price.forward / 2 == pytest.approx(0.56e9, rel=0.02)
    assert price.input_gradients == pytest.approx(2 * price.forward, rel=0.02)
    assert price.updates == pytest.approx(3 * price.forward, rel=0.02)


def test_seconds_are_measured(plan):
    price = seconds(run_of(plan, "at"), torch.device("cpu"), budget=0.5)
    # Their order is noise on a busy machine.
    assert min(price.forward, price.input_gradients, price.updates) > 0
