"""What a figure is drawn from, read when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from harness.core import paths
from harness.core.files import read_arrays
from harness.core.paths import read_history
from harness.data import Images, load
from harness.evaluation.cells import Records, cells, read_artefact
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan


@dataclass(frozen=True)
class Source:
    artefact: Artefact
    plan: Plan
    results: Path

    @cached_property
    def records(self) -> dict[str, Records]:
        return read_artefact(self.artefact, self.plan, self.results)

    @cached_property
    def cells(self) -> pd.DataFrame:
        return cells(self.artefact, self.records, self.plan)

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
