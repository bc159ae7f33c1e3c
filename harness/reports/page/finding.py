"""What the page says first: the verdicts, and the most robust Generalist beside the best baseline.

And the chart below it: natural accuracy against AutoAttack, as coordinates, drawn by
templates/finding.html.j2. Both show the first table that has these two columns.
"""

import math
from dataclasses import dataclass
from typing import Any

from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan
from harness.reports.palette import colour, in_the_dark, place_of

WIDTH, HEIGHT = 640, 400
_STEPS = (1, 2, 5, 10, 20)
_TICKS = 7
_MARGIN = 0.04  # of an axis, beyond the outermost number


@dataclass(frozen=True)
class Axis:
    """A column; the places of its ticks, and of any number, in the chart."""

    column: str
    low: float
    high: float
    size: int

    @property
    def ticks(self) -> list[tuple[int, float]]:
        step = next((s for s in _STEPS if (self.high - self.low) / s <= _TICKS), _STEPS[-1])
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [(step * number, self.place(step * number)) for number in range(first, last + 1)]

    def place(self, value: float) -> float:
        return round(self.size * (value - self.low) / (self.high - self.low), 1)


def trade_off(plan: Plan, tables: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Each method's two numbers, the most robust of ours and of the baselines; None without a table."""
    for table in tables:
        if not (columns := _columns(table["artefact"])):
            continue
        for part in table["parts"]:
            rows = [row for row in part["rows"] if all(name in row["cells"] for name in columns)]
            if rows:
                return _chart(plan, table["artefact"], part["first"], rows, columns)
    return None


def _columns(artefact: Artefact) -> tuple[str, str] | None:
    """The table's natural accuracy and its first AutoAttack accuracy, if it has both."""
    attacks = {cell.column: cell.meaning.attack for cell in artefact.cells}
    found = [[name for name, attack in attacks.items() if attack == own] for own in ("none", "aa")]
    return (found[0][0], found[1][0]) if all(found) else None


def _chart(
    plan: Plan, artefact: Artefact, first: dict[str, Any], rows: list[dict[str, Any]], names: tuple
) -> dict[str, Any]:
    labels, free = plan.grid["labels"], len(plan.grid["labels"])
    points = []
    for row in rows:
        place = place_of(row["method"], labels)
        if "@" in row["method"] or place == len(labels):  # beside its method it needs its own colour
            place, free = free, free + 1
        light = colour(place)
        pair = dict(zip(("x", "y"), (row["cells"][name] for name in names), strict=True))
        own = {key: row[key] for key in ("method", "label", "ours")}
        points.append({**own, **pair, "light": light, "dark": in_the_dark(light)})
    sizes = {"x": WIDTH, "y": HEIGHT}
    axes = {key: _axis(points, key, name) for key, name in zip(sizes, names, strict=True)}
    ours, others = ([point for point in points if point["ours"] is own] for own in (True, False))
    best, baseline = (
        max(kind, key=lambda one: one["y"]["ours"], default=None) for kind in (ours, others)
    )
    about = {"artefact": artefact, "first": first, "points": points, **axes}
    return {**about, "ours": ours, "best": best, "baseline": baseline}


def _axis(points: list[dict[str, Any]], key: str, name: str) -> Axis:
    ends = ("ours", "low", "high", "published")
    known = [point[key][end] for point in points for end in ends if point[key][end] is not None]
    low, high = min(known), max(known)
    room = _MARGIN * (high - low) or 1.0
    return Axis(name, low - room, high + room, WIDTH if key == "x" else HEIGHT)


_VERBS = {"holds": "hold", "fails": "fail", "undecided": "are undecided", "no number": "have no number"}
_VERBS |= {"not measured": "are not measured", "holds where measured": "hold where measured"}
_VERBS |= {"holds where printed": "hold where printed"}


def said(counts: dict[str, int]) -> str:
    """Counts of verdicts as a sentence says them: 1 holds, 13 fail and 22 are not measured."""
    parts = []
    for word, count in counts.items():
        if not count:
            continue
        one = f"is {word}" if word in ("undecided", "not measured") else word or "is not judged"
        one = "has no number" if word == "no number" else one
        parts.append(f"{count} {one if count == 1 else _VERBS.get(word, one)}")
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
