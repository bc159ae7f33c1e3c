"""What is generated from the code must be current: docs/fidelity.md."""

import re

import pytest
from conftest import ROOT

from harness.core.config import read_grid
from harness.papers.fidelity import fidelity, parts


def method_of(line: str) -> str | None:
    found = re.match(r"\| `(\w+)`", line)
    return found[1] if found else None


FIDELITY = (ROOT / "docs" / "fidelity.md").read_text().splitlines()
LISTED = {method_of(line) for line in FIDELITY}


def test_the_fidelity_table_is_current():
    """A method that it does not list yet is no mistake: generalist-bench fidelity adds it."""
    lines = fidelity(read_grid()).splitlines()
    assert [line for line in lines if method_of(line) in LISTED] == FIDELITY


@pytest.mark.parametrize("line", [line for line in FIDELITY if method_of(line)])
def test_every_method_names_its_paper_what_is_certain_and_how_it_was_compared(line):
    _, name, paper, _, certain, _, _, compared, _ = (
        cell.strip() for cell in re.split(r"(?<!\\)\|", line)
    )
    assert len(paper) > 20, name
    assert certain != "-", name
    assert compared != "-", name


def test_docstring_parts():
    text = "NAME: Someone, 2020. Text.\n\nCertain: a.\nGuess: b, c. Deviations: d.\nCompared: e."
    found = parts(text)
    assert found == {
        "paper": "NAME: Someone, 2020",
        "certain": "a.",
        "guess": "b, c.",
        "deviation": "d.",
        "compared": "e.",
    }
