"""config/*.yaml and config/scales/*.yaml: read safely, checked against their schemas."""

from pathlib import Path
from typing import Any

import jsonschema
import yaml

from harness.core.errors import UserError, expected, unknown

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
SCHEMAS = ROOT / "workflow" / "schemas"


def read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise UserError(f"expected a config file at {path}, found none; give its path.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"expected plain YAML in {path}, found: {reason}; fix it.") from None


def scales() -> list[str]:
    return sorted(path.stem for path in (CONFIG / "scales").glob("*.yaml"))


def read_scale(name: str) -> dict[str, Any]:
    if name not in scales():
        raise unknown("scale", name, scales(), "config/scales")
    return _checked(CONFIG / "scales" / f"{name}.yaml", "scale")


def read_grid(path: Path | None = None) -> dict[str, Any]:
    """Our grid, or a user's: a whole one, or entries that lie over ours (`extends: config/grid.yaml`).

    The presets are those of config/presets.yaml, unless a whole grid has its own.
    """
    path = path or CONFIG / "grid.yaml"
    content, presets = read_yaml(path), {"presets": read_yaml(CONFIG / "presets.yaml")}
    if isinstance(content, dict):
        if "extends" in content:
            content = merged({**presets, **read_yaml(CONFIG / "grid.yaml")}, content)
        content = {**presets, **content}
    return _checked(path, "grid", content)


def read_claims(path: Path | None = None) -> dict[str, Any]:
    return _checked(path or CONFIG / "claims.yaml", "claims")


def read_papers() -> dict[str, Any]:
    """Who published which method."""
    return _checked(CONFIG / "papers.yaml", "papers")


def _checked(path: Path, schema: str, content: Any = None) -> dict[str, Any]:
    """The content of a config file, if it fits its schema."""
    content = read_yaml(path) if content is None else content
    validator = jsonschema.Draft202012Validator(read_yaml(SCHEMAS / f"{schema}.schema.yaml"))
    error = jsonschema.exceptions.best_match(validator.iter_errors(content))
    if error is not None:
        place = ".".join(str(step) for step in error.absolute_path) or "the top level"
        wanted = error.schema.get("description", "what the schema allows")
        allowed = f"workflow/schemas/{schema}.schema.yaml lists what is allowed"
        what = f"{wanted} at {place} of {path.name}"
        raise expected(what, error.message, f"fix that entry ({allowed})")
    return content


def merged(base: Any, over: Any) -> Any:
    """`over` on top of `base`: mappings are merged key by key, anything else is replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        both = {key: merged(base[key], over[key]) for key in base.keys() & over.keys()}
        return {**base, **over, **both}
    return over
