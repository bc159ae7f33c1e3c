"""What reaches a shell is quoted: a name from a path or a config runs nothing."""

import re

import pytest
from conftest import ROOT

RULES = sorted([ROOT / "Snakefile", *ROOT.glob("workflow/**/*.smk")])
_FIELD = re.compile(r"(?<!\{)\{([^{}:]+)(:q)?\}")


def unquoted(text: str) -> list[str]:
    """The fields of `shell:` commands that a shell would read as more than a word."""
    found = []
    for block in re.findall(r"^ +shell:\n((?:^ {8}.*\n?)+)", text, re.MULTILINE):
        strings = "".join(re.findall(r'"(?:[^"\\]|\\.)*"', block))
        found += [name for name, quoted in _FIELD.findall(strings) if not quoted]
    return found


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_every_field_of_a_command_is_quoted(path):
    assert unquoted(path.read_text()) == []


def test_an_unquoted_field_is_found():
    rule = 'rule a:\n    shell:\n        "cat {input:q} {wildcards.name} "\n        "> {log}"\n\n'
    assert unquoted(rule) == ["wildcards.name", "log"]
