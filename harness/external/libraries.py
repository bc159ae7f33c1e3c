"""Networks of other libraries by name, where those are installed: `robustbench:`, `timm:`, `hf:`."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from harness.core.errors import UserError, expected
from harness.machine.device import import_torchvision

_THREATS = {"linf": "Linf", "l2": "L2"}


class Normalized(nn.Module):
    """A network that wants its images with mean 0: the subtraction is part of it."""

    def __init__(self, model: nn.Module, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        for name, values in (("mean", mean), ("deviation", deviation)):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Any:
        mean, deviation = self.get_buffer("mean"), self.get_buffer("deviation")
        return self.model((x - mean) / deviation)


def _library(name: str, package: str, remedy: str) -> ModuleType:
    import_torchvision()  # which these libraries import, and which may need help (machine/device.py)
    try:
        with warnings.catch_warnings(action="ignore"):  # of names that it registers twice
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name.partition(".")[0]:
            raise expected(f"the library {package}", "none", f"pip install {package}") from None
        raise expected(f"{package} to import", f"no module {error.name}", remedy) from None
    except Exception as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise expected(f"{package} to import", found, remedy) from None


def _obtained(make: Callable[[], nn.Module], what: str, library: str) -> nn.Module:
    try:
        return make()
    except UserError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise expected(what, found, f"look the name up in {library}, and check the network") from None


def robustbench(name: str, data: str, norm: str) -> nn.Module:
    """An entry of RobustBench's model zoo, for the data set and norm of the evaluation."""
    with _stand_ins():
        utils = _library("robustbench.utils", "robustbench", _ROBUSTBENCH)
    if norm not in _THREATS:
        raise expected(f"a norm of RobustBench ({', '.join(_THREATS)})", norm, "change --norm")
    words = {"model_name": name, "dataset": data, "threat_model": _THREATS[norm]}
    what = f"{name} in RobustBench for {data} and {_THREATS[norm]}"
    return _obtained(lambda: utils.load_model(**words), what, "robustbench")


@contextmanager
def _stand_ins() -> Iterator[None]:
    """robustbench 1.1.1 imports two modules that its dependencies do not bring: `autoattack`, whose
    package on PyPI is imported as pyautoattack, and `pkg_resources`, which setuptools 82 took out. They
    are there while it is imported, and no longer: others look for pkg_resources too."""
    resources: Any = ModuleType("pkg_resources")
    resources.resource_filename = lambda name, path: str(
        Path(sys.modules[name].__file__ or "").parent / path
    )
    wanted: dict[str, Callable[[], ModuleType]] = {
        "autoattack": lambda: importlib.import_module("pyautoattack"),
        "autoattack.state": lambda: importlib.import_module("pyautoattack.state"),
        "pkg_resources": lambda: resources,
    }
    added = [n for n in wanted if n not in sys.modules and find_spec(n.partition(".")[0]) is None]
    sys.modules.update({name: wanted[name]() for name in added})
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def timm(name: str, data: str, norm: str) -> nn.Module:
    """A pretrained network of timm, with its own mean and deviation taken off."""
    library = _library("timm", "timm", "pip install --upgrade timm")

    def made() -> nn.Module:
        model = library.create_model(name, pretrained=True)
        about = model.pretrained_cfg
        return Normalized(model, about["mean"], about["std"])

    return _obtained(made, f"{name} in timm, with weights", "timm")


def hf(name: str, data: str, norm: str) -> nn.Module:
    """An image classifier of the Hugging Face hub, through transformers."""
    library = _library("transformers", "transformers", "pip install --upgrade transformers")

    def made() -> nn.Module:
        model = library.AutoModelForImageClassification.from_pretrained(name)
        about = library.AutoImageProcessor.from_pretrained(name)
        return Normalized(model, about.image_mean, about.image_std)

    return _obtained(made, f"an image classifier {name} on the hub", "huggingface.co")


_ROBUSTBENCH = "download the weights and give them with --model path.py:function --weights FILE"
LIBRARIES: dict[str, Callable[[str, str, str], nn.Module]] = {
    "robustbench": robustbench,
    "timm": timm,
    "hf": hf,
}
