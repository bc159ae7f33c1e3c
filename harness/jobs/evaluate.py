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
from harness.external.libraries import LIBRARIES
from harness.external.question import NORMS
from harness.grid.plan import Plan
from harness.grid.specs import read_spec
from harness.machine.device import DEVICES, pick_device, placed, set_up, torch
from harness.models.networks import load_model


def refuse_other_images(run: str, about: dict[str, Any]) -> None:
    """Weights that were learnt from other images than the set has now say nothing about it."""
    dataset = about["run"]["dataset"]
    known, now = about.get("trained_on"), at_hand(SETS[dataset], "train")
    if known and now is not None and known["sha256"] != now.sha256:
        what = f"the images that {run} was trained on in {dataset}'s training split"
        remedy = "put the old ones back, or delete the folder of the model to train it again"
        raise expected(what, "others in their place", remedy)


def evaluate_theirs(options: argparse.Namespace) -> None:
    """`benchmark` (harness/external), with its table printed and its report saved."""
    from harness.external.benchmark import prepared

    asked = ("model", "weights", "data", "attacks", "norm", "eps", "steps", "examples", "batch_size")
    words = {name: getattr(options, name) for name in (*asked, "seed", "grid", "results", "device")}
    evaluation = prepared(**words, scale=options.scale or "paper")
    if options.part:
        evaluation.part(options.part)
        print(f"part {options.part} is done; when all are, the same words without --part report")
        return
    report = evaluation.report()
    print(report)
    folder = report.save()
    print(f"the report is at {folder / 'report.md'} and {folder / 'report.html'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Evaluate a trained run of the grid (--run), or any torch classifier (--model)."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", help="a run's id; `generalist-bench plan --runs` lists them")
    what.add_argument("--spec", help="the evaluation itself, as the workflow gives it to a job")
    kinds = "path.py:function that returns a network for images in [0,1], a TorchScript file, or "
    what.add_argument("--model", help=f"{kinds}{', '.join(f'{name}:NAME' for name in LIBRARIES)}")
    theirs = parser.add_argument_group("with --model")
    theirs.add_argument("--weights", type=Path, help="its .safetensors, .pt or .pth file")
    theirs.add_argument("--data", default="cifar10", help="a data set, an .npz or a folder of images")
    theirs.add_argument("--attacks", default="aa", help="aa, rand, all; attacks or columns by comma")
    theirs.add_argument("--norm", choices=NORMS, default="linf")
    theirs.add_argument("--eps", help="a radius such as 8/255, unless the data set's usual one")
    theirs.add_argument("--steps", type=positive, help="of pgd, mim and cw")
    theirs.add_argument("--examples", type=positive, default=1000, help="so many test images")
    theirs.add_argument("--batch-size", type=positive, default=250, help="so many at once")
    theirs.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=Part.read, help="2/8: every eighth batch only, from the second")
    parser.add_argument("--scale", help="smoke for --run, paper for --model, unless given")
    parser.add_argument("--grid", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--threads", type=positive, help="1 for --run, all cores for --model")
    parser.add_argument("--device", default="auto", help=f"one of {', '.join(DEVICES)}")
    options = parser.parse_args()
    set_up(options.threads or (torch.get_num_threads() if options.model else 1))
    if options.model:
        evaluate_theirs(options)
        return
    device = pick_device(options.device)
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
