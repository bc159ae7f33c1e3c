"""What leaves this project: `generalist-bench export parquet | robustbench | card | push`."""

import argparse
from pathlib import Path

from harness.attacks.attack import ORDERS
from harness.reports.export.card import write_card, write_robustbench
from harness.reports.export.evaluations import evaluations, named
from harness.reports.export.hub import push
from harness.reports.export.parquet import write_parquet

_SAID = ("name", "authors", "venue", "link", "architecture", "reported")


def main() -> None:
    parser = argparse.ArgumentParser(description="Records, a model card, an entry for RobustBench.")
    whats = parser.add_subparsers(dest="what", required=True)
    table = whats.add_parser("parquet", help="all records as one table, a row per image and attack")
    table.add_argument("--to", type=Path, default=Path("records.parquet"))
    table.add_argument("--evaluation", action="append", help="only this one; may be repeated")
    entry = whats.add_parser("robustbench", help="RobustBench's JSON of one evaluation")
    entry.add_argument("--evaluation", required=True, help="its record file, or its model")
    entry.add_argument("--norm", default="linf", choices=list(ORDERS))
    entry.add_argument("--to", type=Path, default=Path("."))
    for field in _SAID:
        entry.add_argument(f"--{field}", default="", help="as RobustBench writes it")
    card = whats.add_parser("card", help="a model card, README.md, beside the weights")
    card.add_argument("--evaluation", required=True, help="its record file, or its model")
    card.add_argument("--weights", type=Path, required=True)
    for one in (table, entry, card):
        one.add_argument("--results", type=Path, default=Path("results"))
    upload = whats.add_parser("push", help="a folder with weights and card to a hub")
    upload.add_argument("--folder", type=Path, required=True)
    upload.add_argument("--repository", required=True, help="user/name")
    upload.add_argument("--private", action="store_true")
    options = parser.parse_args()
    if options.what == "parquet":
        some = options.evaluation and [named(options.results, name) for name in options.evaluation]
        rows = write_parquet(options.to, some or evaluations(options.results))
        print(f"{rows} rows are in {options.to}")
    elif options.what == "robustbench":
        said = {field: getattr(options, field) for field in _SAID}
        evaluation = named(options.results, options.evaluation)
        print(f"the entry is {write_robustbench(evaluation, options.norm, said, options.to)}")
    elif options.what == "card":
        evaluation = named(options.results, options.evaluation)
        print(f"the card is {write_card(evaluation, options.weights, options.results)}")
    else:
        print(f"uploaded: {push(options.folder, options.repository, options.private)}")
