"""With `--sdm conda` or `--sdm apptainer` a job runs in the environment that Snakemake made for it.

Neither program can be had from PyPI, so scripts stand in for them: they answer what Snakemake asks, and
the `python` of their environments writes down how it was called.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT, said, snakemake_words
from conftest import ROOT

CONDA = """#!/bin/bash
case "$1 $2" in
  "info --json") echo '{{"conda_prefix": "{tools}", "platform": "linux-64"}}' ;;
  "--version ") echo conda 24.9.2 ;;
  "config --get") echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
  "env create") mkdir -p "${{@: -1}}" && cp -r "{tools}/environment/bin" "${{@: -1}}" ;;
esac
"""
ACTIVATE = 'PATH="$1/bin:$PATH"\n'
APPTAINER = """#!/bin/bash
[ "$1" = --version ] && echo apptainer version 1.3.0 && exit
[[ " $* " == *" generalist-bench.sif "* ]] || exit 1
PATH="{tools}/environment/bin:$PATH" exec bash -c "${{@: -1}}"
"""
INTERPRETER = """#!/bin/bash
echo "$PYTHONPATH ${{GENERALIST_ZYGOTE-alone}} $*" >> "{tools}/jobs"
exec "{python}" "$@"
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    scripts = {
        "bin/conda": CONDA,
        "bin/activate": ACTIVATE,
        "bin/apptainer": APPTAINER,
        "environment/bin/python": INTERPRETER,
    }
    for name, content in scripts.items():
        path = tmp_path / "tools" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.format(tools=tmp_path / "tools", python=sys.executable))
        path.chmod(0o755)
    return tmp_path / "tools"


@pytest.mark.parametrize("method", ["conda", "apptainer"])
def test_a_job_runs_in_its_own_environment(method, tools, grid, tmp_path):
    words = snakemake_words("data", "--sdm", method, grid=grid)
    path = f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, said(done)
    assert "digits test" in (tmp_path / "results" / "data" / "digits.txt").read_text()
    assert (tools / "jobs").read_text() == f"{ROOT} alone -m harness fetch digits\n"
