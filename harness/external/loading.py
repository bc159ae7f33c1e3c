"""From an address to a network: `path.py:function`, a TorchScript file, or `library:name`."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.core.errors import expected
from harness.external.libraries import LIBRARIES
from harness.external.weights import load_weights

_SCRIPTS = (".pt", ".pth", ".ts")
_LONGEST = 300  # characters of somebody else's error


def network(address: str, weights: Path | None, data: str, norm: str) -> tuple[nn.Module, str]:
    """A network, and a short name for its records."""
    library, colon, name = address.partition(":")
    if colon and library in LIBRARIES:
        model, label = LIBRARIES[library](name, data, norm), f"{library}-{name}"
    elif Path(address).suffix in _SCRIPTS:
        model, label = _script(Path(address)), Path(address).stem
    else:
        path, _, function = address.rpartition(":")
        model, label = _built(Path(path), function, address), f"{Path(path).stem}-{function}"
    if weights is not None:
        load_weights(model, weights)
    return model, re.sub(r"[^\w-]", "_", label)


def _built(source: Path, function: str, address: str) -> nn.Module:
    if not source.is_file():
        remedy = f"give a Python file and a function in it, or {' or '.join(LIBRARIES)}:name"
        raise expected("--model path.py:function", address, remedy)
    make = vars(_module(source)).get(function)
    if not callable(make):
        remedy = "name one that returns a network"
        raise expected(f"a function {function!r} in {source}", "none", remedy)
    lacking = _required(make)
    if lacking:
        found = f"one that wants {', '.join(lacking)}"
        remedy = f"add a function that returns {function}({lacking[0]}=...)"
        raise expected(f"{address} to need no arguments", found, remedy)
    model = _run(make, f"a network from {address}")
    if not isinstance(model, nn.Module):
        remedy = "return the network itself"
        raise expected(f"a torch.nn.Module from {address}", type(model).__name__, remedy)
    return model


def _required(make: Callable[..., Any]) -> list[str]:
    """The arguments that it cannot do without."""
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = inspect.signature(make).parameters.values()
    return [one.name for one in given if one.default is one.empty and one.kind not in free]


def _module(source: Path) -> Any:
    """The file as a module, as `import` would make it: dataclasses look for it in sys.modules, and its
    own imports for the files beside it."""
    folder, name = str(source.resolve().parent), source.stem
    known = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.modules and (known is None or Path(known).resolve() != source.resolve()):
        name = f"model_{name}"  # such as a random.py
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise expected("a Python file", source, "give one whose name ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _run(lambda: spec.loader.exec_module(module), f"to import {source}")  # type: ignore[union-attr]
    return module


def _run(make: Callable[[], Any], what: str) -> Any:
    try:
        return make()
    except FileNotFoundError as error:
        remedy = (
            "give the path of one that is there; a relative one counts from where the command is given"
        )
        found = f"no file {error.filename or error}"
        raise expected(what, found, remedy) from error
    except Exception as error:  # whatever somebody else's code raises
        raise expected(what, told(error), "mend that file") from error


def told(error: BaseException) -> str:
    """Somebody else's error in a line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST]


def _script(path: Path) -> nn.Module:
    if not path.is_file():
        raise expected(f"a TorchScript file {path}", "none", "give the path of one that is there")
    try:
        return torch.jit.load(str(path), map_location="cpu")
    except RuntimeError:
        found = "weights without a network, or another kind of file"
        remedy = f"give --model path.py:function and --weights {path}"
        raise expected(f"a TorchScript archive in {path}", found, remedy) from None
