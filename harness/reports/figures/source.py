"""What a figure is drawn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

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
    def dataset(self) -> str:
        return self.plan.dataset(self.artefact.rows[0].dataset)

    @cached_property
    def images(self) -> Images:
        """The test images behind the figure: its data set must be at hand, its models need not."""
        return load(self.dataset, "test")

    @cached_property
    def labels(self) -> np.ndarray:
        return self.records[self.artefact.runs[0]][1]["labels"][self.dataset]

    def class_name(self, number: int) -> str:
        classes = self.plan.grid["datasets"][self.dataset].get("classes")
        return classes[number] if classes else str(number)
