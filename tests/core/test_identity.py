import json
from dataclasses import dataclass, make_dataclass
from fractions import Fraction

import pytest
from conftest import ROOT, run_of

from harness.core.paths import canonical, fingerprint, seed_from
from harness.grid.plan import Plan

GOLDEN = ROOT / "tests" / "golden" / "ids.json"


@dataclass(frozen=True)
class Thing:
    eps: Fraction
    note: str | None = None
    rate: float = 0.1


def test_fractions_stay_text_and_none_is_left_out():
    assert canonical(Thing(Fraction(8, 255))) == {
        "class": "Thing",
        "revision": 1,
        "eps": "8/255",
        "rate": 0.1,
    }


def test_a_new_optional_field_keeps_the_id_and_an_edited_default_changes_it():
    old = make_dataclass("Thing", [("rate", float, 0.1)], frozen=True)()
    new = make_dataclass("Thing", [("rate", float, 0.1), ("extra", object, None)], frozen=True)()
    edited = make_dataclass("Thing", [("rate", float, 0.2)], frozen=True)()
    assert fingerprint(old) == fingerprint(new) != fingerprint(edited)


def test_a_raised_revision_changes_the_id():
    revised = type("Thing", (Thing,), {"REVISION": 2})
    assert fingerprint(revised(Fraction(1))) != fingerprint(Thing(Fraction(1)))


@pytest.mark.parametrize("value", [{1, 2}, object(), [1], float("nan")])
def test_unknown_types_are_refused(value):
    with pytest.raises(TypeError, match="expected"):
        canonical(value)


def test_streams_of_one_run_differ():
    assert len({seed_from(seed, role) for seed in range(5) for role in ("a", "b")}) == 10


def test_ids_are_the_golden_ones():
    """A change here shows a reviewer exactly which finished runs it invalidates.

    If it is meant: python tests/golden/update.py
    """
    golden = json.loads(GOLDEN.read_text())
    found = {scale: sorted(Plan.read(scale).runs) for scale in golden}
    assert found == golden


def test_a_hyper_parameter_changes_exactly_its_runs():
    before = Plan.read("smoke")
    edited = json.loads(json.dumps(before.grid))
    edited["methods"]["trades6"]["beta"] = 5
    after = Plan(edited, before.scale, "smoke")
    changed = {run.split("-")[2] for run in before.runs.keys() ^ after.runs.keys()}
    # Its average with lambda = 6 stays: a point of extra_front is the same run.
    assert changed == {"trades6", "trades5", "trades5_averaged"}


def test_a_scale_is_not_part_of_identity(plan):
    one, other = (Plan(plan.grid, plan.scale, name) for name in ("ci", "another name"))
    assert list(one.runs) == list(other.runs)
    assert run_of(plan, "at").id in plan.runs
