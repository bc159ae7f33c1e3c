"""Where the CPU seconds of `make test` go: by folder of tests/, and its costliest files.

A test's seconds are those of its worker of pytest-xdist and of all processes that it started, read
from a control group of the worker's own (cgroup v1; root only). Elsewhere they are those of the worker
and of the processes that it waited for: jobs of a zygote are missing then. What tests share (a fixture
of the module or the session) counts for the test that came first. With `SUITE=prefix` the records of an
earlier run are read: prefix.gw0, prefix.gw1, ...
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.timing import Row
from harness.core.config import ROOT

CORES, GROUPS = 2, Path("/sys/fs/cgroup/cpuacct")
_COSTLIEST = 12
_RECORDS = "SUITE_RECORDS"


def measure() -> list[Row]:
    if "SUITE" in os.environ:
        return rows(Path(os.environ["SUITE"]))
    with tempfile.TemporaryDirectory() as folder:
        prefix, began = Path(folder) / "of", time.monotonic()
        words = ["-p", "benchmarks.suite", "-n", str(CORES), "--dist", "loadfile"]
        own = {_RECORDS: str(prefix), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pytest", *words]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **own}, check=True)
        took = time.monotonic() - began
        return [Row(f"wall time on {CORES} cores", f"{took / 60:.1f} min", "< 7 min"), *rows(prefix)]


def rows(prefix: Path) -> list[Row]:
    sys.path.insert(0, str(ROOT / "tests"))
    from conftest import SLOW

    spent: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for path in prefix.parent.glob(f"{prefix.name}.gw*"):
        for name, kind, seconds, *_ in map(json.loads, path.read_text().splitlines()):
            if kind == "all":
                file = name.partition("::")[0].removeprefix("tests/")
                spent[file] += seconds
                count[file] += 1
    fast = [file for file in spent if not any(Path(file).is_relative_to(name) for name in SLOW)]
    folders: Counter[str] = Counter()
    for file, seconds in spent.items():
        folders[file.partition("/")[0]] += seconds
    of_all = f"{sum(spent.values()):.0f} s for {count.total()} tests"
    of_fast = f"{sum(spent[file] for file in fast):.0f} s for {sum(count[file] for file in fast)} tests"
    return [
        Row("all tests, seconds of CPU", of_all),
        Row("those of `make check`", of_fast),
        Row("by folder", listed(folders)),
        Row("the costliest files", listed(Counter(dict(spent.most_common(_COSTLIEST))))),
    ]


def listed(seconds: Counter[str]) -> str:
    return ", ".join(f"{name} {value:.0f}" for name, value in seconds.most_common() if value >= 1)


class Meter:
    """Used by the workers: pytest -p benchmarks.suite."""

    def __init__(self, path: Path) -> None:
        self.records, self.usage = path.open("w", buffering=1), None
        group = GROUPS / f"suite-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
            self.usage = group / "cpuacct.usage"
        except OSError:
            pass

    def now(self) -> float:
        if self.usage:
            return int(self.usage.read_text()) / 1e9
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in used)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        before = self.now()
        try:
            return (yield)
        finally:
            self.records.write(json.dumps([item.nodeid, "all", self.now() - before]) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        config.pluginmanager.register(Meter(Path(f"{os.environ[_RECORDS]}.{worker}")))
