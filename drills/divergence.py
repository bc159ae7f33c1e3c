"""A NaN loss in one of several runs."""

from __future__ import annotations

import re

from drills import Attempt, Try, demand
from drills.commands import said, snakemake
from drills.ground import TABLE, Ground, small_grid
from harness.core import paths
from harness.grid.plan import Plan


def diverges(ground: Ground) -> Attempt:
    """a loss that is NaN, in one run of two"""

    def attempt(this: Try) -> str:
        lr = 10 ** this.random.uniform(12, 30)
        wild, tame = (
            small_grid(
                this.folder / f"{name}.yaml",
                ["nt", "wild"],
                {"wild": {"method": "nt", "optim": {"like": "natural", "lr": rate}}},
            )
            for name, rate in (("wild", lr), ("tame", 0.05))
        )
        nt = ground.run_of("nt")
        failing = Plan.read("ci", wild).train_run("wild", "cifar10", "resnet18", seed=0)
        done = snakemake(TABLE, cwd=this.folder, grid=wild)
        demand(done.returncode != 0, "a run that cannot have converged was believed")
        found = re.findall(r"error: (expected a finite loss.*)", said(done))
        demand(found, f"no sentence: {said(done)}")
        demand(re.search(r"at epoch \d+, step \d+; lower its", found[0]), f"no place: {found[0]}")
        results = this.folder / "results"
        demand(not paths.model(results, failing.id).exists(), "a model of nonsense")
        demand(not list((this.folder / "reports").rglob("*.csv")), "a table of nonsense")
        kept = paths.model(results, nt.id)
        demand(kept.exists(), "the other run was not finished")
        before = kept.stat().st_mtime_ns
        ground.check_records(nt, this.folder)
        done = snakemake(TABLE, cwd=this.folder, grid=tame)
        demand(done.returncode == 0, f"not even with another rate: {said(done)}")
        demand(kept.stat().st_mtime_ns == before, "the other run was trained again")
        ground.check_weights(nt, this.folder)
        return "said where, the other run kept"

    return attempt
