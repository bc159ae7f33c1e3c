"""`benchmark`: any torch classifier for images in [0,1], attacked and checked. The command calls it."""

from __future__ import annotations

import copy
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.core.paths import fingerprint
from harness.core.process import provenance
from harness.data import Images, load
from harness.data.sets import SETS
from harness.evaluation.evaluate import evaluate, evaluate_part
from harness.evaluation.records import Part, read_evaluation
from harness.evaluation.trust import Check, record_checks
from harness.external import images as own_images
from harness.external.announcement import announced, counted, generated, price
from harness.external.doubts import beyond, unchanged
from harness.external.loading import network
from harness.external.question import NATURAL, Question, asked
from harness.external.report import Report, balls, tables
from harness.external.state import key
from harness.external.trial import IMAGES, check_type, tried
from harness.external.weights import load_weights, named
from harness.grid.columns import EvalRun
from harness.machine.device import pick_device
from harness.training.batches import unit


def benchmark(
    model: nn.Module | str,
    data: str = "cifar10",
    norm: str = "linf",
    eps: float | str | Fraction | None = None,
    attacks: str | Sequence[str] = "aa",
    examples: int = 1000,
    batch_size: int = 250,
    device: str = "auto",
    **more: Any,
) -> Report:
    """Attack a network on a data set's first test images, and check what the numbers are worth.

    `model` takes images in [0,1] and returns logits; or its address, as the command takes it. `data`: a
    set by name, an .npz with x and y, or a folder with a folder of images per class. `eps` is the data
    set's usual radius unless given (8/255 for l_inf on CIFAR-10). `attacks`: `aa` (AutoAttack), `rand`
    (its version for networks that draw at random), `all`, or names of attacks or columns.

    `more`: `steps` of pgd, mim and cw; `seed`; `weights`, a file for the network; `results`, the folder
    in which records are kept, so that a second call computes only what is missing; `scale` and `grid`,
    whose columns are meant; `quiet`.
    """
    words: dict[str, Any] = {"norm": norm, "eps": eps, "attacks": attacks, "examples": examples}
    words |= {"batch_size": batch_size, "device": device, **more}
    return prepared(model, data=data, **words).report()


@dataclass(frozen=True)
class Evaluation:
    """A network that passed its trial, and what is asked of it."""

    model: nn.Module
    device: torch.device
    question: Question
    run: EvalRun
    results: Path
    notes: tuple[str, ...]
    about: dict[str, Any]

    @property
    def images(self) -> Images:
        return load(self.question.dataset, "test").take(slice(self.question.examples))

    def part(self, part: Part) -> None:
        """Every `of`-th batch only; `report` joins them once all parts are there."""
        evaluate_part(*self._work(), part, **_theirs(self.model))

    def _work(self) -> tuple[EvalRun, nn.Module, str, Path, torch.device]:
        return self.run, self.model, self.run.run, self.results, self.device

    def report(self) -> Report:
        evaluate(*self._work(), **_theirs(self.model))
        records, found = read_evaluation(self.results, self.run)
        checks = [Check.from_json(entry) for entry in found["checks"]]
        random = not next(c.ok for c in checks if c.name == "deterministic logits")
        x, y = self._tensors(self.images)
        natural = next(c for c in self.question.shown if c.name == NATURAL).formula.parts[0]
        batch = self.question.probes[0].batch_size

        def predict(rows: slice) -> Tensor:
            return self.model(x[rows]).argmax(dim=1)

        checks.append(unchanged(predict, self.images.y, records[natural], batch, random))
        checks += beyond(self.model, x, y, self.question, records)
        labels = found["labels"].get(self.question.dataset)
        attacks = self.question.attacks
        checks += record_checks(attacks, records, undefended=False, selection=None, labels=labels)
        table, flags, listed = tables(self.question, records, checks, self.images.y)
        about = {**self.about, "arithmetic": found.get("folding", "the network's own")}
        about = {**about, "seconds": f"{found['seconds']:.0f}, over all starts"}
        return Report(table, flags, listed, self.notes, about, self._folder())

    def _tensors(self, images: Images) -> tuple[Tensor, Tensor]:
        x = unit(torch.from_numpy(np.ascontiguousarray(images.x)).to(self.device))
        return x, torch.from_numpy(images.y).to(self.device)

    def _folder(self) -> Path:
        """A place of its own for each question about each network."""
        question = fingerprint((self.run.id, *(column.name for column in self.question.shown)))
        name = f"{self.run.run}-{self.question.dataset}-n{self.question.examples}-{question}"
        return self.results / "external" / name


def _theirs(model: nn.Module) -> dict[str, Any]:
    """How `evaluate` treats a network that is not ours."""
    return {"whole": False, "inside": lambda where: counted(model, *where)}


def prepared(
    model: nn.Module | str,
    *,
    data: str,
    device: str = "auto",
    weights: Path | str | None = None,
    results: Path | str = "results",
    quiet: bool = False,
    **words: Any,
) -> Evaluation:
    """Load, try, identify, announce. Nothing is attacked yet."""
    chosen, dataset = pick_device(device), own_images.dataset(data)
    question = asked(dataset, **words)
    path = Path(weights) if weights is not None else None
    if isinstance(model, str):
        address, (net, label) = model, network(model, path, dataset, words.get("norm", "linf"))
    else:
        check_type(model)
        address = label = type(model).__name__
        net = _copied(model)
        if path is not None:
            load_weights(net, path)
    few = load(dataset, "test").take(slice(IMAGES))
    x = unit(torch.from_numpy(np.ascontiguousarray(few.x)).to(chosen))
    y, classes = torch.from_numpy(few.y).to(chosen), SETS[dataset].classes
    net, notes = tried(net.to(chosen), x, y, classes)
    name = key(net, x, y, Path(results), label)
    where = f"{chosen} ({torch.get_num_threads()} threads)" if chosen.type == "cpu" else str(chosen)
    about = {
        "model": address,
        "weights": named(path),
        "records": name,
        **_of(question, few.stored.source),
        "batch size": words.get("batch_size", 250),
        "seed": words.get("seed", 0),
        "grid": str(words.get("grid") or "config/grid.yaml"),
        "device": where,
        "made": _made(),
    }
    if not quiet:
        said = [*announced(question, price(net, x, y), where), *(f"note: {note}" for note in notes)]
        print("\n".join([f"{address} on {about['images']}", *said]), file=sys.stderr, flush=True)
    run = EvalRun(name, question.probes)
    return Evaluation(net, chosen, question, run, Path(results), tuple(notes), about)


def _copied(model: nn.Module) -> nn.Module:
    """The caller's network stays where and as it is."""
    if isinstance(model, torch.jit.ScriptModule):  # whose deep copy has parameters without leaves
        file = io.BytesIO()
        torch.jit.save(model, file)
        return torch.jit.load(io.BytesIO(file.getvalue()))
    try:
        return copy.deepcopy(model)
    except Exception:  # such as one that keeps a tensor with a graph
        return model


def _of(question: Question, source: str) -> dict[str, Any]:
    """The data and the attacks of a report."""
    whole = len(load(question.dataset, "test"))
    made = sorted({p.dataset.partition("/")[0] for p in question.probes if generated(p)})
    changed = ", ".join(f"{name} {number}" for name, number in question.autoattack.items())
    return {
        "images": f"the first {question.examples:,} of {whole:,} test images of {question.dataset}",
        "source": source,
        "generated corruptions": ", ".join(made) or "none",
        "radii": balls(question.shown),
        "columns": ", ".join(column.name for column in question.shown),
        "AutoAttack": f"shortened at scale {question.scale}: {changed}"
        if changed
        else "its own budget",
    }


def _made() -> str:
    made = provenance()
    packages = ", ".join(f"{name} {made['packages'][name]}" for name in ("torch", "pyautoattack"))
    return f"commit {made['commit']}, {packages}, {made['processor']}, {os.cpu_count()} cores"
