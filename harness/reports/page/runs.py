"""What the page says of each run: its config in readable form, its curves, its trust checks."""

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from harness.core.paths import read_description, read_history
from harness.evaluation.trust import read_checks
from harness.grid.plan import Plan
from harness.reports.page.sparklines import charts

_GREY_LEVELS = 255


def runs(plan: Plan, results: Path, reports: Path) -> list[dict[str, Any]]:
    """Every model of the plan, by id; parents that nothing shows have no records."""
    found = _found(plan, reports)
    return [{**_trained(results, run), **found[run]} for run in sorted(plan.runs)]


def _trained(results: Path, run: str) -> dict[str, Any]:
    about, history = read_description(results, run), read_history(results, run)
    drawn = charts(history, about["deployed_epoch"])
    return {**about, "config": config_text(about["run"]), "charts": drawn}


def _found(plan: Plan, reports: Path) -> dict[str, dict[str, Any]]:
    """Run -> the labels and artefacts that it has, and each check once, failures first."""
    found: dict[str, dict[str, Any]] = {
        run: {"labels": {}, "artefacts": {}, "checks": {}, "sources": {}, "evaluation_seconds": 0.0}
        for run in plan.runs
    }
    for name, artefact in plan.artefacts.items():
        for row in artefact.rows:
            for run in row.runs:
                found[run]["labels"][plan.label(row.method)] = found[run]["artefacts"][name] = True
        for run, about in read_checks(plan, name, reports).items():
            for check in about["checks"]:  # several artefacts may have it
                key = (check.name, check.norm, check.found)
                found[run]["checks"][key] = {"run": run, **check.as_json()}
            found[run] |= {"sources": about["sources"], "evaluation_seconds": about["seconds"]}
    for own in found.values():
        own["checks"] = sorted(own["checks"].values(), key=lambda c: (c["ok"], c["name"]))
    return found


def config_text(run: Mapping[str, Any]) -> str:
    """A run's canonical JSON as YAML, without the fields that only its id needs."""
    shown = readable(run, "TrainRun")
    return yaml.dump(shown, Dumper=_Compact, sort_keys=False, allow_unicode=True, width=80)


def readable(value: Any, key: str = "") -> Any:
    """Class names only where the field's name differs from them; radii in grey levels."""
    if isinstance(value, Mapping):
        kept = [name for name in value if name not in ("class", "revision")]
        fields = {name: readable(value[name], name) for name in kept}
        name = str(value.get("class", ""))
        if not name or name.lower() == key.lower():
            return fields
        return {name: fields} if fields else name
    if isinstance(value, list):
        return [readable(entry) for entry in value]
    if isinstance(value, str) and re.fullmatch(r"\d+(/[1-9]\d*)?", value):
        return _number(Fraction(value), in_levels=key in ("eps", "step"))
    return value


def _number(value: Fraction, in_levels: bool) -> float | str:
    """A decimal if that is exact, else a fraction; 12/85 is shown as 36/255."""
    decimal, levels = float(f"{float(value):g}"), value * _GREY_LEVELS
    if Fraction(str(decimal)) == value:
        return int(decimal) if decimal.is_integer() else decimal
    return f"{levels}/{_GREY_LEVELS}" if in_levels and levels.denominator == 1 else str(value)


class _Compact(yaml.SafeDumper):
    """Lists of plain values on one line; no YAML aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        plain = not any(isinstance(entry, Mapping) for entry in sequence)
        return super().represent_sequence(tag, sequence, flow_style=plain)
