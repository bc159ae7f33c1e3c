"""What a figure is drawn from."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from harness.core import paths
from harness.core.errors import expected
from harness.core.files import one_line, read_arrays
from harness.core.paths import AFTER, read_history
from harness.data import Images, load
from harness.data.sets import SETS
from harness.evaluation.records import Records
from harness.evaluation.trust import Check
from harness.grid.artefacts import Artefact
from harness.grid.plan import Plan
from harness.reports.cells import cells

_EACH = "distance_"  # a history has such a column for each network


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

    def trace(self, run_id: str) -> dict[str, np.ndarray]:
        """The adversarial images that a watched run kept, as `<epoch>:<network>`."""
        run, path = self.plan.run(run_id), paths.trace(self.results, run_id)
        if run.watch is None:
            raise expected(f"a watched run for {self.artefact.name}", run_id, "give it a `watch`")
        columns = [name for name in read_history(self.results, run_id) if not name.endswith(AFTER)]
        networks = [name.removeprefix(_EACH) for name in columns if name.startswith(_EACH)]
        last = run.recipe.epochs
        kept = [epoch for epoch in range(last) if run.watch.keeps_images_after(epoch, last)]
        image = (SETS[run.dataset].channels, *SETS[run.dataset].size)
        most = run.watch.examples * math.prod(image)
        names = [f"{epoch + 1}:{name}" for epoch in kept for name in networks]
        found = read_arrays(path, dict.fromkeys(names, (np.uint8, most)))
        if list(found) != names or any(images.shape[1:] != image for images in found.values()):
            remedy = f"delete {path.parent} to train it again"
            raise expected(f"images of {', '.join(names)} in {path}", "others", remedy)
        return found

    def class_name(self, number: int) -> str:
        classes = self.plan.grid["datasets"][self.dataset].get("classes")
        return one_line(classes[number] if classes else number)
