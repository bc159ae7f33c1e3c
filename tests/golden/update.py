"""Rewrite ids.json after a change of identity that is meant."""

import json
from pathlib import Path

from harness.plan import Plan

if __name__ == "__main__":
    ids = {scale: sorted(Plan.read(scale).runs) for scale in ("smoke", "paper")}
    Path(__file__).with_name("ids.json").write_text(json.dumps(ids, indent=1) + "\n")
