"""Other people's models: any torch classifier for images in [0,1], through the same suite and checks.

    generalist-bench evaluate --model net.py:build --weights w.safetensors --data cifar10 --attacks all

Its records lie beside ours, under a name made of the function's and a hash of its code and weights; the
answer is `results/external/<name>/report.md` and `report.html`.
"""

import argparse
import re
import runpy
from pathlib import Path

import pandas as pd
import torch
from safetensors.torch import load as tensors_from
from torch import nn

from harness.core.errors import UserError, expected
from harness.core.files import in_csv, in_markdown, sha256, write_whole
from harness.core.process import provenance
from harness.core.statistics import wilson
from harness.data import load
from harness.evaluation.evaluate import evaluate, evaluate_part
from harness.evaluation.records import read_evaluation, value
from harness.evaluation.trust import Check, record_checks
from harness.grid.columns import PROTOCOLS, Columns, EvalRun
from harness.grid.plan import Plan
from harness.reports.page.render import environment


def evaluate_external(options: argparse.Namespace, device: torch.device) -> None:
    if not options.data:
        raise expected("a data set with --model", "none", "add --data cifar10")
    plan = Plan.read(options.scale or "paper", options.grid)
    dataset, test = plan.dataset(options.data), dict(plan.scale["test"])
    if dataset != options.data:
        found = f"its stand-in at scale {plan.name}, {dataset}"
        raise expected(options.data, found, f"add --scale paper, or write --data {dataset}")
    wanted = options.examples or plan.columns.examples(dataset)
    test["examples_of"] = {dataset: min(wanted, len(load(dataset, "test")))}
    test["batch_size"] = options.batch_size or test["batch_size"]
    columns = Columns(plan.grid, {**plan.scale, "test": test})
    model, name = build(options.model, options.weights)
    chosen = chosen_columns(columns, options.attacks, dataset)
    autoattack = columns.autoattack(chosen, PROTOCOLS[0])
    shown = [columns.resolved(name, dataset, PROTOCOLS[0], autoattack) for name in chosen]
    probes = {probe.id: probe for column in shown for probe in column.probes}
    evaluation = EvalRun(name, tuple(probes[key] for key in sorted(probes)))
    model = model.to(device).eval()
    if options.part:
        evaluate_part(evaluation, model, name, options.results, device, options.part)
        print(f"part {options.part} is done; when all are, the same words without --part report")
        return
    evaluate(evaluation, model, name, options.results, device)

    records, about = read_evaluation(options.results, evaluation)
    rows = []
    for column in shown:
        flags = value(column.formula, records)
        low, high = wilson(float(flags.sum()), len(flags))
        calls = max(records[probe.id].backward for probe in column.probes)
        rows.append((column.name, 100 * flags.mean(), 100 * low, 100 * high, len(flags), calls))
    table = pd.DataFrame(rows, columns=["column", "accuracy", "low", "high", "n", "gradient_calls"])
    checks = [Check.from_json(entry) for entry in about["checks"]]
    attacks = columns.attacks(dataset, PROTOCOLS[0], autoattack)
    labels = about["labels"].get(dataset)
    checks += record_checks(attacks, records, undefended=False, selection=None, labels=labels)
    folder = options.results / "external" / name
    write_report(folder, options, table.round(2), checks)
    print(f"the report is at {folder / 'report.md'} and {folder / 'report.html'}")


def build(address: str, weights: Path | None) -> tuple[nn.Module, str]:
    """The network that `path.py:function` returns, with its weights, and a name for its records."""
    path, _, function = address.rpartition(":")
    source = Path(path)
    if not path or not source.is_file():
        remedy = "give a Python file and a function in it"
        raise expected("--model path.py:function", address, remedy)
    made_by = runpy.run_path(path).get(function)
    if not callable(made_by):
        remedy = "name one that returns a network"
        raise expected(f"a function {function!r} in {source}", "none", remedy)
    model = made_by()
    if not isinstance(model, nn.Module):
        remedy = "return the network itself"
        raise expected("a torch.nn.Module from it", type(model).__name__, remedy)
    content = source.read_bytes()
    if weights is not None:
        data = weights.read_bytes()
        content += data
        try:
            model.load_state_dict(tensors_from(data))
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            message = f"expected weights for {function} in {weights}, found: {reason}"
            raise UserError(f"{message}; give its own file.") from None
    slug = re.sub(r"\W", "_", function)
    return model, f"external-{source.stem}-{slug}-s0-{sha256(content)[:10]}"


def chosen_columns(columns: Columns, attacks: str, dataset: str) -> list[str]:
    """Columns by name; `all` are those that the data set has threats for, aliases left out."""
    if attacks != "all":
        return [name.strip() for name in attacks.split(",")]
    found: dict[str, str] = {}
    for name in columns.grid["columns"]:
        entry = columns.column(name)
        if "measured" in entry:  # the cost of its training is unknown
            continue
        parts = entry.get("mean", entry.get("all", [name]))
        if all(columns.affords(part, dataset, PROTOCOLS[0]) for part in parts):
            found.setdefault(str(entry), name)
    return list(found.values())


def write_report(
    folder: Path, options: argparse.Namespace, table: pd.DataFrame, checks: list[Check]
) -> None:
    page = environment().get_template("external.html.j2")
    rows = table.to_dict("records")
    html = page.render(options=options, rows=rows, checks=checks, made=provenance())
    lines = [f"# {in_markdown(f'{options.model} on {options.data}')}", ""]
    lines += ["| column | accuracy | 95 % | n | gradient calls |", "|---|---:|---|---:|---:|"]
    for row in rows:
        interval = f"{row['low']:.2f} to {row['high']:.2f}"
        cells = (in_markdown(row["column"]), f"{row['accuracy']:.2f}", interval, row["n"])
        lines.append(f"| {' | '.join(map(str, (*cells, row['gradient_calls'])))} |")
    lines += ["", "| check | verdict | found |", "|---|---|---|"]
    for check in checks:
        verdict, found = "held" if check.ok else "**failed**", in_markdown(check.found)
        lines.append(f"| {in_markdown(check.name)} {check.norm or ''} | {verdict} | {found} |")
    write_whole(folder / "table.csv", in_csv(table))
    write_whole(folder / "report.md", "\n".join(lines) + "\n")
    write_whole(folder / "report.html", html)
