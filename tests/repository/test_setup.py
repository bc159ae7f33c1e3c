"""The project's own shape: pins, dependencies between packages, what may import torch."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from conftest import ROOT

PACKAGES = ("harness", "baselines", "generalist")


def test_conda_and_pip_pin_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert sorted(pip) == sorted(project["dependencies"])
    extras = project["optional-dependencies"].values()
    everything = [*project["dependencies"], *(pin for extra in extras for pin in extra)]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", requirement) for requirement in everything)


@pytest.mark.parametrize("package", PACKAGES)
def test_dependencies_point_one_way(package):
    forbidden = set(PACKAGES[PACKAGES.index(package) + 1 :])
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.split(".")[0] for name in names} & forbidden, file


TORCH_FREE = (
    "cli",
    "grid.plan",
    "jobs.plan",
    "jobs.resources",
    "jobs.start",
    "papers.audit",
    "papers.claims",
    "reports.tables",
    "reports.page.build",
    "reports.robustbench",
)


@pytest.mark.parametrize("module", [f"harness.{name}" for name in TORCH_FREE])
def test_planning_and_reporting_never_import_torch(module):
    code = (
        f"import sys, {module}; from harness.grid.plan import Plan; plan = Plan.read('paper'); "
        "plan.evaluations; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_harness_names_no_method():
    slugs = {"trades", "generalist", "halfhalf", "madry"}
    for file in (ROOT / "harness").rglob("*.py"):
        tree = ast.parse(file.read_text())
        names = {node.id.lower() for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & slugs, file
