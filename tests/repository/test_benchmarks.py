"""What the benchmarks print is what they measured."""

import pytest
from conftest import ROOT

from benchmarks.__main__ import PARTS, line, measured, render
from benchmarks.timing import Row, Times, faster, in_turn


def test_no_number_in_the_readme_was_typed_in():
    assert (ROOT / "benchmarks" / "README.md").read_text() == render()
    assert all(measured(part).exists() for part in PARTS)


def test_contenders_take_turns():
    calls = []
    times = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3  # the first round warms up
    assert {name: len(own) for name, own in times.seconds.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_taken_within_rounds():
    times = Times({"slow": [2.0, 40.0, 6.0], "fast": [1.0, 10.0, 2.0]})
    assert times.ratio("slow", "fast") == 3
    assert times.median("slow") == 6


@pytest.mark.parametrize(("ratio", "met"), [(1.59, "**no**"), (1.6, "yes")])
def test_a_missed_target_is_said(ratio, met):
    assert line(faster("this", ratio, 1.6)).endswith(f"| >= 1.6x | {met} |")
    assert line(Row("that", "5 s")) == "| that | 5 s |  |  |"
