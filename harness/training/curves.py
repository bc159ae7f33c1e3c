"""Live curves: each row of a training's history, as soon as its epoch is over, to any callable.

`--curves tensorboard:FOLDER` writes event files for TensorBoard; `--curves module:function` calls a
function of yours with the row, a dict of numbers with `epoch` in it. From Python: `train(...,
curves=f)`. A curve sees a copy: it changes neither the training nor its id. A run that continues shows
the epochs before it again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.core.errors import expected

Curves = Callable[[Mapping[str, float]], object]
_FORM = "tensorboard:FOLDER or module:function"


def curves(address: str, run: str) -> Curves:
    """What the command's `--curves` names."""
    where, _, what = address.rpartition(":")
    if not where or not what:
        raise expected(_FORM, address, "write --curves tensorboard:curves")
    if where == "tensorboard":
        return tensorboard(Path(what) / run)
    sys.path.insert(0, "")  # a module in the folder that the command was said in
    try:
        found = getattr(importlib.import_module(where), what, None)
    except ImportError as error:
        raise expected(
            f"a module {where} for --curves", str(error), "name one that Python finds"
        ) from None
    finally:
        sys.path.remove("")
    if not callable(found):
        raise expected(f"a function {what} in {where}", repr(found), "name one that takes a row")
    return found


def tensorboard(folder: Path) -> Curves:
    """Write rows as event files, one folder per run."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        remedy = "install it: pip install tensorboard"
        raise expected("the package tensorboard, for live curves", "none", remedy) from None
    writer = SummaryWriter(str(folder))

    def show(row: Mapping[str, float]) -> None:
        for name, value in row.items():
            if name != "epoch":
                writer.add_scalar(name.replace(":", "/"), value, int(row["epoch"]))
        writer.flush()

    return show


def show(curve: Curves, row: Mapping[str, float]) -> Curves | None:
    try:
        curve(dict(row))
    except Exception as error:  # somebody else's code: a training of days is worth more than its curve
        print(f"the curves stop here: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None
    return curve
