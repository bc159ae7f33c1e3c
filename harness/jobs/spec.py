"""What a job is to do, as JSON on its command line: a run of training, or an evaluation.

The workflow plans; a job gets its run and plans nothing.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import is_dataclass
from typing import Any

from harness.attacks import autoattack
from harness.core.errors import expected
from harness.core.identity import canonical, restored
from harness.grid import probes
from harness.grid.build import registry
from harness.grid.plan import Plan
from harness.grid.probes import EvalRun
from harness.training import learner, runs
from harness.training.runs import TrainRun


def training_spec(plan: Plan, run: str) -> str:
    return _text(plan, plan.run(run))


def evaluation_spec(plan: Plan, run: str) -> str:
    if run not in plan.evaluations:
        raise expected("a run that a table evaluates", f"the mere parent {run}", "choose another")
    return _text(plan, plan.evaluations[run])


def _text(plan: Plan, work: TrainRun | EvalRun) -> str:
    content = {"registry": plan.grid["registry"], "id": work.id, "run": canonical(work)}
    return json.dumps(content, separators=(",", ":"))


def read_spec(text: str) -> Any:
    """A TrainRun or an EvalRun, the same to the last field: its id is compared."""
    try:
        content = json.loads(text)
        methods = registry(content["registry"])
        places = [runs, learner, autoattack, probes]
        places += [importlib.import_module(cls.__module__) for cls in methods.values()]
        known = [one for place in places for one in vars(place).values() if isinstance(one, type)]
        classes = {one.__name__: one for one in known if is_dataclass(one)}
        work = restored(content["run"], classes)
        same = work.id == content["id"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise expected("a spec that the workflow wrote", f"{error!r}", "start Snakemake") from None
    if not same:
        raise expected(f"the spec of {content['id']}", f"that of {work.id}", "start Snakemake")
    return work
