"""Write constraints.txt and constraints-cuda.txt: every package that the pins of pyproject.toml need.

`make lock`, after a pin changed. pip resolves the pins and installs nothing. It sees PyPI only
(`--isolated`), so neither mirrors nor wheels of this machine count.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What only PyPI's build of torch needs. Another build (TORCH=cu126) needs other versions of the same.
CUDA = re.compile(r"(cuda|nvidia)-|triton=")
HEADER = "# Made by `make lock`; `make .venv/ready` installs these versions (docs/installing.md).\n"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].split(",")[0].removeprefix(">=")
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    if found != oldest or sys.platform != "linux":
        sys.exit(
            f"error: expected Python {oldest} on Linux, found {found} on {sys.platform}; "
            f"newer Pythons run what the oldest resolves: run make clean lock PYTHON=python{oldest}."
        )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
    ]
    resolved = subprocess.run(
        [*pip, "--report", "-", ".[test,slurm,export,docs]"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    packages = [entry["metadata"] for entry in json.loads(resolved.stdout)["install"]]
    pins = sorted((f"{package['name']}=={package['version']}" for package in packages), key=str.lower)
    pins.remove(f"{project['name']}=={project['version']}")
    cuda = [pin for pin in pins if CUDA.match(pin)]
    for name, lines in (
        ("constraints.txt", [pin for pin in pins if pin not in cuda]),
        ("constraints-cuda.txt", cuda),
    ):
        (ROOT / name).write_text(HEADER + "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
