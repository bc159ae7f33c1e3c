"""The papers' numbers for an artefact, by our names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from harness.core.config import ROOT
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan

PUBLISHED = ROOT / "reports" / "published" / "values.csv"
KEYS = ["dataset", "network", "method", "column"]


def published(artefact: Artefact, plan: Plan) -> pd.DataFrame:
    """The papers' numbers for an artefact, by our keys."""
    return printed(artefact.published, artefact.published_rows, artefact.columns, plan)


def printed(
    sources: str | Iterable[str], rows: Mapping[str, str], columns: Iterable[str], plan: Plan
) -> pd.DataFrame:
    """Some columns of a printed table, or of several, by our keys; columns may have other names there.

    `rows` names the printed row beside one of ours; several of ours may have the same one. A row that
    is not in it has the printed row of its own name. Of several tables the first with a number counts.
    """
    everything, found = pd.read_csv(PUBLISHED), []
    for source in [sources] if isinstance(sources, str) else sources:
        document, _, name = source.partition("_")
        own = everything[(everything.document == document) & (everything.artefact == name)]
        found.append(own[~own.method.isin(rows)])
        found += [own[own.method == theirs].assign(method=ours) for ours, theirs in rows.items()]
    values = pd.concat(found)
    parts = []
    for column in columns:
        entry = plan.columns.column(column)
        own = values[values.metric == entry.get("published", column)].assign(column=column)
        suffix = f"-{entry['corrupted']}" if entry.get("published") and "corrupted" in entry else ""
        own = own[own.dataset.str.endswith(suffix)] if suffix else own
        parts.append(own.assign(dataset=own.dataset.str.removesuffix(suffix)))
    names = {"arch": "network", "value": "published", "std": "published_std"}
    table = pd.concat(parts).rename(columns=names)[[*KEYS, "published", "published_std"]]
    return table.drop_duplicates(KEYS)
