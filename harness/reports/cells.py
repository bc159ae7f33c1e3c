"""The cells of a table: numbers with intervals, paired tests, failed checks, published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.statistics import interval, paired
from harness.data.sources import GENERATED, PART
from harness.evaluation.records import Records, value
from harness.evaluation.trust import Check
from harness.grid.artefacts import Artefact, Cell
from harness.grid.plan import Plan
from harness.papers.published import KEYS, published

if TYPE_CHECKING:
    import pandas as pd

Images = dict[tuple[str, ...], np.ndarray]  # data set, network, column, method -> by image
_PLACE = ["dataset", "network", "column"]  # whose methods are compared


def cells(
    artefact: Artefact, read: Mapping[str, Records], checks: Mapping[str, Sequence[Check]], plan: Plan
) -> pd.DataFrame:
    """One row per cell. With several seeds: their mean, their deviation, an interval over both."""
    import pandas as pd  # here: planning asks this room for names only

    images: Images = {}
    rows = []
    for cell in artefact.cells:
        numbers, first = _numbers(cell, read, images), cell.runs[0]
        failed = _failed(cell, checks) if numbers["n"] else []
        rows.append(
            {
                **{key: getattr(cell, key) for key in KEYS},
                "label": plan.label(cell.method),
                **numbers,
                "measured_on": plan.dataset(cell.dataset),
                "source": "; ".join(sources(cell, read[first][1])),
                "measured_with": plan.network(cell.network),
                "protocol": artefact.protocol,
                "selection": plan.run(first).selection.use,
                "failed_checks": "; ".join(dict.fromkeys(failed)),
                "runs": " ".join(cell.runs),
            }
        )
    table = pd.DataFrame(rows).merge(published(artefact, plan), on=KEYS, how="left")
    table["difference"] = (table.ours - table.published).round(2)
    lower = {cell.column: cell.meaning.lower_is_better for cell in artefact.cells}
    # Best and second by rank; equal numbers share a mark.
    signed = table.ours.where(table.column.map(lower), -table.ours)
    rank = signed.groupby([table[key] for key in _PLACE]).rank(method="min")
    table["mark"] = rank.map({1.0: "best", 2.0: "second"}).fillna("")
    return _against_best_baseline(table, images, lower, plan.grid["roles"]["ours"])


def _numbers(cell: Cell, read: Mapping[str, Records], images: Images) -> dict[str, Any]:
    """Mean, interval, number of images and seeds; keeps what it finds image by image in `images`."""
    if cell.formula.op == "measured":
        each = [read[run][1]["trained"]["seconds"] / 60 for run in cell.runs]
        low = high = n = None
    else:
        values = np.stack([value(cell.formula, read[run][0]) for run in cell.runs])
        each, n = [100 * float(flags.mean()) for flags in values], values.shape[1]
        low, high = (round(100 * end, 2) for end in interval(values))
        images[cell.dataset, cell.network, cell.column, cell.method] = values
    calls = [read[run][0][probe].backward for run in cell.runs for probe in cell.formula.probes]
    return {
        "ours": round(float(np.mean(each)), 2),
        "low": low,
        "high": high,
        "n": n,
        "seeds": len(cell.runs),
        "std": round(float(np.std(each, ddof=1)), 2) if len(each) > 1 else None,
        "gradient_calls": max(calls, default=0),
    }


def _failed(cell: Cell, checks: Mapping[str, Sequence[Check]]) -> list[str]:
    own = [check for run in cell.runs for check in checks.get(run, ())]
    return [check.name for check in own if not check.ok and check.touches(cell.meaning)]


def sources(cell: Cell, about: Mapping[str, Any]) -> list[str]:
    """Where the images behind a cell came from. Training images are named if they are a part."""
    sets = {about["probes"][probe]["dataset"] for probe in cell.formula.probes}
    learnt = ((about.get("trained") or {}).get("trained_on") or {}).get("source", "")
    trained = [f"trained on {learnt}"] if PART in learnt else []
    return [*sorted({about["sources"][name] for name in sets}), *trained]


def budget(plan: Plan) -> str:
    """How AutoAttack's budget is shortened at a scale; nothing if it is not."""
    return ", ".join(f"{count} {what}" for what, count in plan.scale["autoattack"].items())


def deviation(table: pd.DataFrame) -> str:
    """What ± means in a table; nothing where every number is of one training."""
    counts = table.groupby("dataset", sort=False).seeds.max()
    if counts.max() == 1:
        return ""
    if counts.nunique() == 1:
        return f"mean ± deviation over {counts.max()} seeds"
    each = ", ".join(f"{count} of {name}" for name, count in counts.items())
    return f"mean ± deviation over seeds ({each})"


def unofficial(table: pd.DataFrame) -> list[str]:
    """Sources that a reader must know of: images that we made, or a part of an official set."""
    found = {text for text in table.source.dropna() if GENERATED in text or PART in text}
    return sorted(one for one in found if not any(one in other for other in found - {one}))


def _against_best_baseline(
    table: pd.DataFrame, images: Images, lower: Mapping[str, bool], our_slugs: str
) -> pd.DataFrame:
    """Each method against the best method that is not ours, on the same images: exact McNemar, or
    Student's t where there are several seeds."""
    found: list[tuple[str | None, float | None]] = []
    baselines = table[~table.method.str.startswith(our_slugs)]
    for row in table.itertuples():
        place = (row.dataset, row.network, row.column)
        rivals = baselines[(baselines[_PLACE] == list(place)).all(axis=1)]
        rivals = rivals[rivals.method != row.method]
        mine = images.get((*place, row.method), np.array([0.5]))
        if rivals.empty or not np.isin(mine, (0, 1)).all():  # minutes, or a mean of columns
            found.append((None, None))
            continue
        worst_first = rivals.sort_values("ours", ascending=not lower[row.column])
        best = str(worst_first.iloc[-1].method)
        test = paired(mine, images[*place, best])
        found.append((best, float(f"{test.p:.3g}")))
    best_ones, p_values = zip(*found, strict=True)
    return table.assign(best_baseline=best_ones, p_against_it=p_values)
