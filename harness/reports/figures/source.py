"""What a figure is drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from harness.core import paths
from harness.core.files import read_arrays
from harness.core.paths import read_history
from harness.data import Images, load
from harness.evaluation.records import Records
from harness.evaluation.trust import Check
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan
from harness.reports.cells import cells


@dataclass(frozen=True)
class Source:
    artefact: Artefact
    plan: Plan
    results: Path
    records: Mapping[str, Records] = field(default_factory=dict)  # none for a figure of trainings
    checks: Mapping[str, Sequence[Check]] = field(default_factory=dict)

    @cached_property
    def cells(self) -> pd.DataFrame:
        return cells(self.artefact, self.records, self.checks, self.plan)

    @cached_property
    def images(self) -> Images:
        """The test images behind the figure: its data set must be at hand, its models need not."""
        return load(self.plan.dataset(self.artefact.rows[0].dataset), "test")

    @cached_property
    def labels(self) -> np.ndarray:
        about = self.records[self.artefact.runs[0]][1]
        return about["labels"][self.plan.dataset(self.artefact.rows[0].dataset)]

    def class_name(self, number: int) -> str:
        entry = self.plan.grid["datasets"][self.plan.dataset(self.artefact.rows[0].dataset)]
        return entry["classes"][number] if "classes" in entry else str(number)

    def history(self, run: str) -> pd.DataFrame:
        return read_history(self.results, run)

    def trace(self, run: str) -> dict[str, np.ndarray]:
        return read_arrays(paths.trace(self.results, run))
