"""What a scale's runs will cost, or which they are: `generalist-bench plan --scale paper`."""

import argparse
from pathlib import Path

from harness.core.commands import positive_number
from harness.core.errors import expected
from harness.grid.plan import Plan


def main() -> None:
    parser = argparse.ArgumentParser(description="What a scale's runs will cost, or which they are.")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--runs", action="store_true", help="list them instead; no torch needed")
    parser.add_argument("--artefacts", action="store_true", help="what each table and figure costs")
    parser.add_argument(
        "--no-calibration",
        action="store_true",
        help="passes only, no times; no torch needed for methods of docs/passes.csv",
    )
    parser.add_argument("--device", default="auto", help="to calibrate on; default: the best one")
    parser.add_argument(
        "--device-tflops",
        type=positive_number,
        metavar="X",
        help="times on a device that sustains X TFLOPS: a fifth of a GPU's data sheet (docs/costs.md)",
    )
    options = parser.parse_args()
    if options.artefacts and options.no_calibration:
        raise expected("--artefacts, which prints hours", "--no-calibration", "leave one of them out")
    plan = Plan.read(options.scale, options.grid)
    if options.runs:
        for run in plan.runs.values():
            images = plan.columns.examples(run.dataset)
            records = len(plan.evaluations[run.id].probes) if run.id in plan.evaluations else 0
            print(f"{run.id}  {run.recipe.epochs} epochs  {records} records  {images} test images")
        print(f"{len(plan.runs)} models, {len(plan.artefacts)} artefacts at scale {plan.name}")
        return
    from harness.jobs import bill

    rates, prices, device = bill.known_rates(), None, ""
    trained = [*plan.runs.values(), *plan.trunks.owners.values()]
    unmeasured = {bill.shape(run.method) for run in trained} - rates.keys()
    if unmeasured or not options.no_calibration:
        from harness.jobs import meter

        rates = meter.rates(plan)
    if not options.no_calibration:
        prices, device = meter.prices(plan, options.device, options.device_tflops)
    if options.artefacts:
        print(bill.by_artefact(plan, bill.costs(plan, rates, prices), device))
    else:
        print(bill.text(plan, rates, prices, device))
