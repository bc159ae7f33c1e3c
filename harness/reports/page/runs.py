"""What the page says of each run: its config in readable form, its curves, its trust checks."""

from __future__ import annotations

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
    uses, evaluated = _uses(plan), _evaluated(plan, reports)
    return [_run(run, {**uses[run], **evaluated[run]}, results) for run in sorted(plan.runs)]


def _uses(plan: Plan) -> dict[str, dict[str, list[str]]]:
    """The labels and artefacts of each run."""
    uses: dict[str, dict[str, list[str]]] = {
        run: {"labels": [], "artefacts": []} for run in plan.runs
    }
    for artefact in plan.artefacts.values():
        for row in artefact.rows:
            for run in row.runs:
                for key, name in (("labels", plan.label(row.method)), ("artefacts", artefact.name)):
                    if name not in uses[run][key]:
                        uses[run][key].append(name)
    return uses


def _run(run: str, found: Mapping[str, Any], results: Path) -> dict[str, Any]:
    about = read_description(results, run)
    return {
        **about,
        "config": config_text(about["run"]),
        "charts": charts(read_history(results, run), about["deployed_epoch"]),
        **found,
    }


def _evaluated(plan: Plan, reports: Path) -> dict[str, dict[str, Any]]:
    """Run -> each check once, failures first, though several artefacts may have it."""
    found: dict[str, dict[str, Any]] = {
        run: {"checks": {}, "sources": {}, "evaluation_seconds": 0.0} for run in plan.runs
    }
    for artefact in plan.artefacts:
        for run, about in read_checks(plan, artefact, reports).items():
            for check in about["checks"]:
                key = (check.name, check.norm, check.found)
                found[run]["checks"][key] = {"run": run, **check.as_json()}
            found[run] |= {"sources": about["sources"], "evaluation_seconds": about["seconds"]}
    for own in found.values():
        own["checks"] = sorted(own["checks"].values(), key=lambda c: (c["ok"], c["name"]))
    return found


def config_text(run: Mapping[str, Any]) -> str:
    """A run's canonical JSON as YAML, without the fields that only its id needs."""
    return yaml.dump(
        readable(run, "TrainRun"), Dumper=_Compact, sort_keys=False, allow_unicode=True, width=80
    )


def readable(value: Any, key: str = "") -> Any:
    """Class names only where the field's name differs from them; radii in grey levels."""
    if isinstance(value, Mapping):
        fields = {
            name: readable(entry, name)
            for name, entry in value.items()
            if name not in ("class", "revision")
        }
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
