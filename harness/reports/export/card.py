"""What others read of one evaluation: a model card for a hub, and RobustBench's JSON.

Both are made of the evaluation's records; what records do not know (authors, licence) is left to you.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from harness.core import paths
from harness.core.errors import UserError, expected
from harness.core.files import in_markdown, sha256, write_whole
from harness.evaluation.trust import Check
from harness.grid.robustbench import ROBUSTBENCH
from harness.reports.export.evaluations import Evaluation, Number, numbers

CARD = "README.md"
_TAGS = ["image-classification", "adversarial-robustness"]


def radius(eps: Fraction) -> str:
    """In grey levels where that is exact (36/255, not 12/85), else as a decimal (0.3)."""
    levels = 255 * eps
    return f"{levels}/255" if levels.denominator == 1 else f"{float(eps):g}"


def title(number: Number) -> str:
    if number.norm is None or number.eps is None:
        return "natural accuracy" if number.attack == "natural" else number.attack
    what = number.attack.removesuffix(f"_{number.norm}").replace("_", "-")
    return f"{'AutoAttack' if what == 'aa' else what}, {number.norm} {radius(number.eps)}"


def selected_on_test(evaluation: Evaluation, results: Path) -> bool:
    """Was the checkpoint of a model of ours selected on test data?"""
    if evaluation.foreign:
        return False
    try:
        run = paths.read_description(results, evaluation.run)["run"]
    except UserError:  # only its records were kept
        return False
    return bool(run["selection"]["use"] == "paper-test")


def write_card(evaluation: Evaluation, weights: Path, results: Path) -> Path:
    """README.md beside the weights; of a model of ours, refused if others were evaluated."""
    if not weights.is_file():
        raise expected(f"the weights {weights}", "no such file", "give the file that was evaluated")
    path, found = weights.with_name(CARD), sha256(weights.read_bytes())
    known = evaluation.about["weights"]
    if not evaluation.foreign and found != known:
        remedy = "give the file that was evaluated, or evaluate this one"
        raise expected(f"the weights of {evaluation.name} ({known[:10]})", found[:10], remedy)
    if path.exists() and not path.read_text(errors="replace").endswith(_END):
        remedy = "move it away, or copy the weights to a folder of their own"
        raise expected(f"no {CARD} beside the weights", f"one that this did not write: {path}", remedy)
    write_whole(path, card(evaluation, weights, results))
    return path


_END = "*Written by `generalist-bench export card` from per-image records.*\n"


def card(evaluation: Evaluation, weights: Path, results: Path) -> str:
    found = numbers(evaluation)
    sets = list(dict.fromkeys(number.dataset for number in found))
    lines = ["---", _front_matter(evaluation, found, sets).rstrip(), "---", ""]
    lines += [f"# {in_markdown(evaluation.run)}", "", f"Evaluated on {', '.join(sets)}.", ""]
    lines += ["| accuracy | % | 95 % | n |", "|---|---:|---|---:|"]
    for one in found:
        interval = f"{one.low:.2f} to {one.high:.2f}"
        lines.append(f"| {in_markdown(title(one))} | {one.accuracy:.2f} | {interval} | {one.n} |")
    lines += ["", "## How far to trust it", ""]
    notes = [f"A trust check failed: {check.name} ({check.found})." for check in evaluation.failed]
    if selected_on_test(evaluation, results):
        notes.append("The checkpoint was selected on test data, as in the papers.")
    lines += [f"- {in_markdown(note)}" for note in notes or ["Every check of the model held."]]
    lines += [f"- Images of {name}: {in_markdown(evaluation.about['sources'][name])}." for name in sets]
    lines += [f"- Weights: `{weights.name}`, sha256 `{sha256(weights.read_bytes())}`.", ""]
    return "\n".join([*lines, _END])


def _front_matter(evaluation: Evaluation, found: list[Number], sets: list[str]) -> str:
    results = [
        {
            "task": {"type": "image-classification"},
            "dataset": {"name": name, "type": name},
            "metrics": [
                {"type": "accuracy", "name": title(one), "value": one.accuracy}
                for one in found
                if one.dataset == name
            ],
        }
        for name in sets
    ]
    about = {
        "library_name": "pytorch",
        "pipeline_tag": "image-classification",
        "tags": _TAGS,
        "datasets": sets,
        "model-index": [{"name": evaluation.run, "results": results}],
    }
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True)


def robustbench(evaluation: Evaluation, norm: str, said: Mapping[str, str]) -> dict[str, Any]:
    """One evaluation with RobustBench's fields; `said` is what records do not know."""
    found = numbers(evaluation)
    robust = [one for one in found if one.attack == f"aa_{norm}"]
    if len(robust) != 1:
        known = ", ".join(f"{radius(one.eps)}" for one in robust if one.eps) or "none"
        remedy = "evaluate with --attacks aa at one radius"
        raise expected(f"AutoAttack in {norm} once in {evaluation.name}", known, remedy)
    (attacked,) = robust
    assert attacked.eps is not None
    natural = [one for one in found if one.attack == "natural" and one.dataset == attacked.dataset]
    if not natural:
        raise expected("the natural accuracy too", "none", "evaluate with --attacks NAT,AA")
    doubts = [check for check in evaluation.failed if check.norm in (None, norm)]
    return {
        **{field: said.get(field, "") for field in ("link", "name", "authors", "venue")},
        "additional_data": False,
        "number_forward_passes": 1,
        "dataset": attacked.dataset,
        "architecture": said.get("architecture", ""),
        "eps": radius(attacked.eps),
        "clean_acc": f"{natural[0].accuracy:.2f}",
        "reported": said.get("reported", ""),
        "autoattack_acc": f"{attacked.accuracy:.2f}",
        "footnote": _footnote(evaluation, attacked, doubts),
        "unreliable": bool(doubts),
    }


def _footnote(evaluation: Evaluation, attacked: Number, doubts: list[Check]) -> str:
    interval = f"95 % interval {attacked.low:.2f} to {attacked.high:.2f}"
    notes = [f"evaluation {evaluation.name}", f"{attacked.n} test images", interval]
    notes += [f"images: {evaluation.about['sources'][attacked.dataset]}"]
    return "; ".join(notes + [f"failed trust check: {check.name}" for check in doubts])


def write_robustbench(evaluation: Evaluation, norm: str, said: Mapping[str, str], to: Path) -> Path:
    path = to / f"{evaluation.name}_{ROBUSTBENCH.get(norm, norm)}.json"
    info = robustbench(evaluation, norm, said)
    write_whole(path, json.dumps(info, indent=2, ensure_ascii=False) + "\n")
    return path
