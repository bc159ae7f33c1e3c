"""Train one run of the grid: `generalist-bench train --scale smoke --run ID`."""

import argparse
from contextlib import nullcontext
from pathlib import Path

from harness.core import paths
from harness.core.commands import positive
from harness.core.errors import expected
from harness.core.files import only_one
from harness.grid.plan import Plan
from harness.grid.specs import read_spec
from harness.machine.device import DEVICES
from harness.training.runs import Stretch, indivisible

_REMEDY = (
    "lower batch_size in the recipe of its scale (config/scales) or of the grid (config/grid.yaml), or "
    "share the batch among several GPUs (docs/data-parallel.md)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train one run of the grid.")
    parser.add_argument("--scale", default="smoke")
    what = parser.add_mutually_exclusive_group(required=True)
    # --id, since torchrun, before Python 3.12, takes --run for a beginning of its own --run-path.
    what.add_argument("--run", "--id", help="its id; `generalist-bench plan --runs` lists them")
    what.add_argument("--spec", help="the run itself, as the workflow gives it to a job")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--device", default="auto", help=f"one of {', '.join(DEVICES)}")
    parser.add_argument(
        "--data-parallel",
        type=positive,
        metavar="K",
        help="processes that share every batch, at most one per GPU (docs/data-parallel.md)",
    )
    parser.add_argument(
        "--rehearse", type=positive, metavar="N", help="N steps only; nothing is written"
    )
    parser.add_argument(
        "--curves",
        metavar="HOW",
        help="live curves: tensorboard:FOLDER, or module:function for each epoch",
    )
    options = parser.parse_args()
    if options.spec:
        stretch, wanted = Stretch.of(read_spec(options.spec)), 1
    else:
        plan = Plan.read(options.scale, options.grid)
        stretch = plan.trunks.stretch(plan.run(options.run))
        wanted = plan.data_parallel(options.run)
    run = stretch.run
    # Here, not above: a mistake in the words is said without the seconds that torch takes.
    from harness.machine import distributed, launch
    from harness.machine.device import enough_memory, set_up
    from harness.training.curves import curves
    from harness.training.rehearsal import rehearse
    from harness.training.train import train

    set_up(options.threads)
    count = launch.started() or launch.affordable(options.data_parallel or wanted, options.device)
    for reason in indivisible(run) if count > 1 else ():
        found, remedy = f"{run.id}, which {reason}", "train it in one process"
        raise expected(f"a run whose batches {count} processes can share", found, remedy)
    if count > 1 and not launch.started():
        launch.start(count)
        return
    device = distributed.join(options.device)
    with enough_memory(f"training on batches of {run.recipe.batch_size} images", _REMEDY):
        if options.rehearse:
            rehearse(run, options.results, device, options.rehearse)
        else:
            folder = paths.model(options.results, run.id).parent
            with only_one(folder, f"training of {run.id}") if distributed.leads() else nullcontext():
                leads = options.curves and distributed.leads()
                live = curves(options.curves, run.id) if leads else None
                train(stretch, options.results, device, live)
    distributed.leave()
