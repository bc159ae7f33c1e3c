"""Claims on what trainings wrote down: Theorem 1's step, and the sag between learners."""

import numpy as np
import pytest

from harness.core.files import write_json
from harness.core.paths import read_history, write_description
from harness.evaluation.trust import checks_path
from harness.papers.claims import judge, parse, runs
from harness.papers.trainings import QUANTITIES, sags

PLACE = "extra_barrier/cifar10/resnet18"
METHOD = "generalist_d_nt_linf"


def rows():
    """Two redistributions; half-way natural accuracy is 20 points below the line, then 4."""
    for epoch, middle in enumerate([None, 0.6, 0.81], 1):
        row = {"epoch": epoch, "theorem2_mean": 0.0 if middle is None else 0.5}
        row |= {"risk_natural:mixture": 1.0 + (epoch == 3), "risk_natural:learners": 1.5}
        if middle is not None:
            line = {"0.000": 0.7, "0.500": middle, "1.000": 0.9 if epoch == 2 else 1.0}
            row |= {f"line_natural:at>nt:{share}": own for share, own in line.items()}
        yield row


@pytest.fixture
def measured(plan, tmp_path):
    run = plan.run(plan.artefact("extra_barrier").rows[0].runs[0])
    write_description(tmp_path, run.id, {"deployed_epoch": 3}, list(rows()))
    return run, tmp_path


def test_numbers_of_a_history(measured):
    run, results = measured
    assert sags(read_history(results, run.id), "natural") == pytest.approx([20, 4])
    found = {name: measure(results, run) for name, (_, measure) in QUANTITIES.items()}
    assert found["first_sag_natural"] == pytest.approx(20)
    assert found["later_sag_natural"] == pytest.approx(4)
    assert found["theorem1_natural"] == 50  # of the two epochs with a mixture
    assert found["best_epoch"] == 100 * 3 / run.recipe.epochs
    assert all(found[name] is None for name in found if name.endswith("robust"))


def test_a_claim_on_a_history(plan, measured):
    _, results = measured
    parts = [
        {"above": 10, "methods": [METHOD], "columns": ["first_sag_natural"], "in": [PLACE]},
        {"below": 5, "methods": [METHOD], "columns": ["later_sag_natural"], "in": [PLACE]},
        {"above": 99, "methods": [METHOD], "columns": ["theorem1_natural"], "in": [PLACE]},
    ]
    entries = [
        {"id": f"n{number}", "claim": "c", "source": "s", "all_of": [part]}
        for number, part in enumerate(parts)
    ]
    claims = parse({"groups": {}, "places": {}, "claims": entries}, plan)
    assert runs(plan, claims) == []  # no records: the figure alone is waited for
    reports = results / "reports"
    assert set(judge(plan, claims, results, reports).our_verdict) == {"not measured"}
    write_json(checks_path(reports, plan, "extra_barrier"), {})  # now it is drawn
    found = judge(plan, claims, results, reports)
    assert found.our_verdict.tolist() == ["holds", "holds", "fails"]
    assert "20.00, claimed above 10 points, without an interval" in found.our_numbers[0]
    assert np.all(found.published_verdict == "no number")
