"""docs/fidelity.md is current, and docs/ is a site by itself."""

import re

import pytest
import yaml
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


def test_a_link_of_the_site_stays_in_docs():
    """`make docs` refuses any other; here it is found without mkdocs."""
    folder, links = ROOT / "docs", 0
    for page in folder.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
            target = (page.parent / link).resolve()
            assert target.is_relative_to(folder), f"{page.name}: {link}"
            assert target.is_file(), f"{page.name}: {link}"
            links += 1
    assert links > 30


def test_the_site_is_built_where_changes_land():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "docs_dir: docs" in settings
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert {"run": "make docs"} in jobs["docs"]["steps"]
