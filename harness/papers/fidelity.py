"""docs/fidelity.md, from the methods' own docstrings: `python -m harness fidelity > docs/fidelity.md`.

A method's module docstring names its paper in the first sentence and says, in paragraphs or sentences
that begin so, what is `Certain:`, what is a `Guess:`, what a `Deviation:`, and how a training step was
`Compared:` with the method's official code.
"""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

from harness.core.config import read_grid
from harness.grid.build import registry

_PARTS = {
    "certain": r"Certain",
    "guess": r"Guess(?:es)?",
    "deviation": r"Deviations?",
    "compared": r"Compared",
}
_PAPER = re.compile(r".*?\(arXiv [\d.]+\)|.*?\b20\d\d\b|[^.]*")
_HEADING = re.compile(r"\b(Certain|Guess(?:es)?|Deviations?|Compared|Unified|Official): ")


def parts(docstring: str) -> dict[str, str]:
    """The first sentence, and what follows each of the headings up to the next one."""
    text = " ".join(docstring.split())
    pieces = _HEADING.split(text)
    paper = _PAPER.match(" ".join(docstring.split("\n\n")[0].split()))
    found = {"paper": paper.group() if paper else ""}
    for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
        for name, pattern in _PARTS.items():
            if re.fullmatch(pattern, heading):
                found[name] = body.strip()
    return found


# What no paper and no code gives: what it is, what we chose, why.
_CHOICES = [
    ("batch size", "128", "the common one; no text prints it"),
    (
        "augmentation",
        "CIFAR: crop after padding by 4, and mirror; SVHN: the crop alone; MNIST: none",
        "common practice",
    ),
    ("steps of CW and MIM", "30 and 20", "the texts name the attacks alone"),
    ("Adam's weight decay", "that of the learner's SGD", "the texts give its learning rate, 1e-4"),
    (
        "first weights",
        "the same for all learners",
        "Algorithm 1 starts from one theta; neither text nor code says more",
    ),
    (
        "BatchNorm's buffers",
        "averaged and mixed like weights",
        "a network is its weights and buffers",
    ),
    (
        "schedule of Generalist++",
        "knots of CVPR A.1: 1 until 40, 1/10 at 60, 1/100 at 120 epochs",
        'its text says only "until epoch 40, after which it decays linearly"',
    ),
    (
        "CIFAR-100, 200 epochs (CVPR Table 3)",
        "t', c, gamma and the schedule keep their shares of the run",
        "the text prints 120ths",
    ),
    (
        "ImageNet, 240 epochs",
        "t' = 150, c = 10: the same shares",
        '"epochs doubled" is all that ++ IV-C says',
    ),
    ("ImageNet, learning rate of WRN-50-2", "0.1 for robust learners", "by analogy with WRN-32-10"),
    (
        "ImageNet, 5,000 test images",
        "drawn at random from the validation set with a written seed",
        "the text says only how many",
    ),
    (
        "TinyImageNet, epochs",
        "120",
        'Zipper A.4, "the same as for CIFAR datasets", may mean 120 or 200',
    ),
    (
        "selection of an epoch",
        "natural accuracy plus the mean PGD20 in the norms that a method trains against",
        "printed for tables in l_inf alone; Generalist++ says nothing",
    ),
    (
        "ImageNet, augmentation",
        "random resized crop and mirror, from the middle square at a short side of 256",
        "not printed; crops from the original files would need images of several shapes",
    ),
    (
        "ImageNet, steps of the evaluation's PGD",
        "1/255 and, in l_2, 7.5/255",
        "CIFAR's shares of eps",
    ),
    ("MNIST, both steps", "a tenth of eps", "the texts give eps alone"),
    ("l_2 noise of PGD's start", "a Gaussian direction of uniform length", "the texts do not say"),
]
_TOP = """# Fidelity to the papers and to the official codes

Made by `python -m harness fidelity > docs/fidelity.md`; what it says of a method is in its docstring.

## What no paper and no code gives

Each of these is our choice, and no seed would show what it does.

| what | here | why |
|---|---|---|
"""
_METHODS = """
## The methods

Every method trains by the papers' `unified` recipe; another one that is named is in
`config/presets.yaml` and is asked for as `slug@official` or `slug@released`.

`Certain` rests on each method's paper or code. `Compared`: one training step of ours against the
official public code with the same weights, batch and noise, on 2026-11-18; the number is the largest
difference found then. What differed then and follows the official code now is held by a formula test in
`tests/baselines/` or `tests/generalist/`. arXiv numbers were written from memory.

| method | paper | recipes | certain | guess | known deviations | compared |
|---|---|---|---|---|---|---|
"""


def fidelity(grid: dict[str, Any]) -> str:
    choices = [f"| {' | '.join(choice)} |" for choice in _CHOICES]
    lines = [*_TOP.splitlines(), *choices, *_METHODS.splitlines()]
    for name, cls in registry(grid["registry"]).items():
        module = inspect.getmodule(cls)
        about = parts((module.__doc__ or "") if module else "")
        presets = [preset for preset, entry in grid["presets"].items() if name in entry]
        recipes = ", ".join(["unified", *presets])
        cells = [about.get(part, "").replace("|", "\\|") or "-" for part in ("paper", *_PARTS)]
        lines.append(f"| `{name}` | {cells[0]} | {recipes} | " + " | ".join(cells[1:]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    sys.stdout.write(fidelity(read_grid()))
