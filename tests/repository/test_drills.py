"""Each drill a time or two; `make drills` does it twenty times (docs/reliability.md)."""

import json
import sys
from pathlib import Path

import pytest

from drills.__main__ import DOCUMENT, DRILLS, drill, measured, rendered
from drills.ground import Ground

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="drills look into /proc")
# Seeds that do not meet the same moments and cases as each other; two where a try is cheap.
TIMES = {"training": 2, "damaged_records": 2, "damaged_cache": 8, "damaged_manifest": 4}


@pytest.fixture(scope="module")
def ground(tmp_path_factory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


@pytest.mark.parametrize("name", DRILLS)
def test_nothing_is_lost(name, ground, monkeypatch):
    monkeypatch.delenv("GENERALIST_ZYGOTE", raising=False)
    found = drill(name, ground, TIMES.get(name, 1), first=1000)
    assert not found["lost"], "\n".join(found["lost"])


def test_no_number_of_the_table_was_typed_in():
    text = DOCUMENT.read_text()
    assert text == rendered(text)
    for path in filter(Path.exists, map(measured, DRILLS)):
        found = json.loads(path.read_text())
        assert found["tried"] == found["survived"] + len(found["lost"])
