"""Evaluate one model: `generalist-bench evaluate --scale smoke --run ID`, or --model path.py:build."""

import argparse
from pathlib import Path
from typing import Any

from harness.core.commands import positive
from harness.core.errors import expected
from harness.core.paths import read_description
from harness.data.sets import SETS
from harness.data.sources import at_hand
from harness.evaluation.evaluate import evaluate, evaluate_part
from harness.evaluation.records import Part
from harness.grid.plan import Plan
from harness.grid.specs import read_spec
from harness.machine.device import DEVICES, pick_device, placed, set_up
from harness.models.networks import load_model


def refuse_other_images(run: str, about: dict[str, Any]) -> None:
    """Weights that were learnt from other images than the set has now say nothing about it."""
    dataset = about["run"]["dataset"]
    known, now = about.get("trained_on"), at_hand(SETS[dataset], "train")
    if known and now is not None and known["sha256"] != now.sha256:
        what = f"the images that {run} was trained on in {dataset}'s training split"
        remedy = "put the old ones back, or delete the folder of the model to train it again"
        raise expected(what, "others in their place", remedy)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Evaluate a trained run of the grid (--run), or any torch classifier (--model)."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", help="a run's id; `generalist-bench plan --runs` lists them")
    what.add_argument("--spec", help="the evaluation itself, as the workflow gives it to a job")
    what.add_argument("--model", help="path.py:function, returning a network for images in [0,1]")
    parser.add_argument("--weights", type=Path, help="with --model: a safetensors file for it")
    parser.add_argument("--data", help="with --model: the data set, such as cifar10")
    parser.add_argument("--attacks", default="all", help="with --model: columns by comma, or all")
    parser.add_argument("--examples", type=positive, help="with --model: so many test images")
    parser.add_argument("--batch-size", type=positive, help="with --model: so many images at once")
    parser.add_argument("--part", type=Part.read, help="2/8: every eighth batch only, from the second")
    parser.add_argument("--scale", help="smoke for --run, paper for --model, unless given")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=positive, default=1)
    parser.add_argument("--device", default="auto", help=f"one of {', '.join(DEVICES)}")
    options = parser.parse_args()
    set_up(options.threads)
    device = pick_device(options.device)
    if options.model:
        from harness.reports.external import evaluate_external

        evaluate_external(options, device)
        return
    if options.run:
        plan = Plan.read(options.scale or "smoke", options.grid)
        options.spec = plan.evaluation_spec(options.run)
    wanted = read_spec(options.spec)
    model = placed(load_model(options.results, wanted.run), device)
    about = read_description(options.results, wanted.run)
    refuse_other_images(wanted.run, about)
    work = (wanted, model, about["sha256"], options.results, device)
    if options.part:
        evaluate_part(*work, options.part)
        return
    trained = {key: about.get(key) for key in ("seconds", "device", "threads", "trained_on")}
    evaluate(*work, trained)
