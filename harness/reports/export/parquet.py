"""Records as Parquet: one row per image and probe, in one file, for pandas, polars or DuckDB.

The columns are `SCHEMA`; docs/export.md prints it, and the file carries it too, as metadata.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import expected
from harness.core.files import write_whole
from harness.data import frames
from harness.reports.export.evaluations import Evaluation

# column -> its type, and what it says; None where it does not apply
SCHEMA = {
    "model": ("string", "the model's id"),
    "weights": ("string", "checksum of the weights that were evaluated"),
    "dataset": ("string", "the test set; `cifar10-c/fog/3` is a corrupted one"),
    "attack": ("string", "the attack; `natural` is none"),
    "norm": ("string", "linf, l2 or l1; null without an attack"),
    "eps": ("double", "radius on the [0,1] scale; null without an attack"),
    "seed": ("int64", "seed of the attack"),
    "probe": ("string", "id of data set, attack, batch size and seed together"),
    "image": ("int32", "number of the image in the test set, from 0"),
    "frame": ("int16", "number of the frame in a sequence of corruptions; else 0"),
    "label": ("int16", "the true class; null where the records do not have it"),
    "predicted": ("int16", "the class under attack"),
    "correct": ("bool", "is the image still right?"),
    "broken_by": ("int8", "number of the attack's stage that broke it; -1 stands, -2 wrong before"),
}


def pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        remedy = "install it: pip install 'generalist-bench[export]'"
        raise expected("the package pyarrow, which writes Parquet", "none", remedy) from None
    return pyarrow


def write_parquet(path: Path, every: Iterable[Evaluation]) -> int:
    """All records, each probe of a model once; the number of rows."""
    arrow, buffer, rows = pyarrow(), io.BytesIO(), 0
    schema = _schema(arrow)
    seen: set[tuple[str, str, str]] = set()
    with arrow.parquet.ParquetWriter(buffer, schema, compression="zstd") as writer:
        for evaluation in every:
            for name in evaluation.records:
                key = (evaluation.run, evaluation.about["weights"], name)
                if key in seen:
                    continue
                seen.add(key)
                table = _table(arrow, schema, evaluation, name)
                writer.write_table(table)
                rows += table.num_rows
    if not rows:
        raise expected("records to export", "none", "evaluate a model first")
    write_whole(path, buffer.getvalue())
    return rows


def _schema(arrow: Any) -> Any:
    kinds = {"bool": "bool_", "double": "float64"}
    return arrow.schema(
        arrow.field(name, getattr(arrow, kinds.get(kind, kind))(), metadata={"description": text})
        for name, (kind, text) in SCHEMA.items()
    )


def _table(arrow: Any, schema: Any, evaluation: Evaluation, name: str) -> Any:
    asked, record = evaluation.probes[name], evaluation.records[name]
    count, each = len(record.correct), frames(asked.dataset)
    labels = evaluation.about.get("labels", {}).get(asked.dataset)
    labels = labels if labels is not None and len(labels) == count else [None] * count
    fixed = {
        "model": evaluation.run,
        "weights": evaluation.about["weights"],
        "dataset": asked.dataset,
        "attack": asked.attack,
        "norm": asked.norm,
        "eps": None if asked.eps is None else float(asked.eps),
        "seed": asked.seed,
        "probe": name,
    }
    columns: dict[str, Any] = {key: [value] * count for key, value in fixed.items()}
    columns |= {"image": np.arange(count) // each, "frame": np.arange(count) % each, "label": labels}
    columns |= {key: getattr(record, key) for key in ("predicted", "correct", "broken_by")}
    return arrow.table([arrow.array(columns[f.name], f.type) for f in schema], schema=schema)
