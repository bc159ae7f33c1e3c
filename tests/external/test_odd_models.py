"""Twenty-odd networks as strangers bring them: each is evaluated or refused with one sentence."""

import copy
import re
import sys

import networks
import pytest
import torch
from conftest import command
from networks import SMALL
from torch import nn

from harness.core.errors import UserError
from harness.external.benchmark import prepared


def tried(model, folder, **words):
    options = {**SMALL, "attacks": "pgd", "examples": 40, "results": folder / "results"}
    return prepared(model, **{**options, **words})


@pytest.fixture(scope="module")
def net():
    return networks.trained()


ACCEPTED = [
    (lambda net: net.double(), "its parameters are float64: cast to float32"),
    (lambda net: net.bfloat16(), "its parameters are bfloat16: cast to float32"),
    (networks.Half, r"its outputs are torch.float16: cast to float32"),
    (networks.Twice, r"a tuple of 2 \(0: \(2, 10\), 1: \(2, 64\)\): the logits are taken from 0"),
    (networks.Named, "a dict .*: the logits are taken from 'logits'"),
    (networks.Rounded, "its gradient to the image is 0 everywhere: no attack but Square can move"),
    (networks.Saturated, "its outputs look like probabilities: return the logits"),
    (networks.Noisy, r"it answers at random \(two passes differ by .*\): .* --attacks rand"),
    (lambda net: networks.plain(), "it is right on .* of 100 images, no more than guessing"),
    (lambda net: torch.jit.script(net), None),
    (lambda net: net.train(), None),
    (lambda net: torch.nn.DataParallel(net), None),
]


@pytest.mark.parametrize(("change", "note"), ACCEPTED)
def test_an_odd_network_that_can_be_evaluated(change, note, net, tmp_path):
    model = change(copy.deepcopy(net))
    before, training = {p.dtype for p in model.parameters()}, model.training
    evaluation = tried(model, tmp_path)
    if note is None:
        assert evaluation.notes == ()
    else:
        (said,) = [text for text in evaluation.notes if re.search(note, text)]
        assert len(said.splitlines()) == 1
    report = evaluation.report()
    assert list(report.table["column"]) == ["NAT", "PGD20"]
    assert report.table["percent"].between(0, 100).all()
    # The caller's network is as it was.
    assert ({p.dtype for p in model.parameters()}, model.training) == (before, training)


REFUSED = [
    (networks.Two, "one tensor of 10 logits per image, found a tuple of 2 with .*; return the logits"),
    (networks.Unnamed, "one tensor of 10 logits per image, found a dict with 'one': .*'other'"),
    (lambda net: networks.Colour(), "images of 1x8x8, found one for 3 channels; choose its data set"),
    (networks.FixedBatch, r"any number of images, found one that takes 64 at once .*x.flatten\(1\)"),
    (networks.Cut, "logits with a gradient to the image, found none; take no_grad, detach"),
    (lambda net: nn.Sequential(*net[:-1], nn.Linear(32, 7)), "a network for 10 classes, found 7"),
    (networks.Broken, "finite logits for the first two images, found 20 of 20 that are NaN"),
    (lambda net: networks.Maps(), r"logits of the shape \(2, 10\), found an output of \(2, 10, 1, 1\)"),
    (lambda net: nn.Linear(9, 10), "a network for images of 1x8x8, found RuntimeError"),
    (lambda net: nn.Sequential, "a network, found the class Sequential; call it"),
    (lambda net: net.state_dict(), "a network, found a state_dict; load it into a network first"),
    (lambda net: net.forward, "a torch.nn.Module, found method; wrap it"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_an_odd_network_that_is_refused(change, message, net, tmp_path):
    with pytest.raises(UserError, match=message) as error:
        tried(change(copy.deepcopy(net)), tmp_path)
    assert len(str(error.value).splitlines()) == 1


FILES = [
    ("def build(width):\n    return None\n", "to need no arguments, found one that wants width"),
    ("def build():\n    return 3\n", "a torch.nn.Module from .*build, found int"),
    ("import nowhere\n", "to import .*, found ModuleNotFoundError: No module named 'nowhere'; mend"),
    ("def build():\n    return open('none.pt')\n", "a network from .*, found no file none.pt; give"),
    ("def build():\n    return 1 / 0\n", "a network from .*, found ZeroDivisionError"),
    ("def other():\n    pass\n", "a function 'build' in .*, found none"),
]


@pytest.mark.parametrize(("source", "message"), FILES)
def test_an_odd_file_is_refused(source, message, tmp_path):
    (tmp_path / "odd.py").write_text(source)
    with pytest.raises(UserError, match=message) as error:
        tried(f"{tmp_path}/odd.py:build", tmp_path)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"--model path.py:function, found .*none.py:build; give a Py"):
        tried(f"{tmp_path}/none.py:build", tmp_path)
    with pytest.raises(UserError, match=r"a TorchScript file .*none.pt, found none"):
        tried(f"{tmp_path}/none.pt", tmp_path)


def test_a_dataclass_and_an_import_of_the_file_beside_it(net, tmp_path):
    """The module has its place in sys.modules, and its folder in sys.path."""
    torch.save(net.state_dict(), tmp_path / "w.pt")
    (tmp_path / "beside_it.py").write_text(networks.SOURCE)
    (tmp_path / "with_dataclass.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import ClassVar\n"
        "import beside_it\n\n\n"
        "@dataclass\nclass Sizes:\n    hidden: ClassVar[int] = 32\n\n\n"
        "def build():\n    return beside_it.build()\n"
    )
    evaluation = tried(f"{tmp_path}/with_dataclass.py:build", tmp_path, weights=tmp_path / "w.pt")
    assert evaluation.notes == ()


def test_a_torchscript_file(net, tmp_path):
    torch.jit.script(net).save(str(tmp_path / "net.pt"))
    report = tried(f"{tmp_path}/net.pt", tmp_path).report()
    assert report.table["percent"][0] > 90
    torch.save(net.state_dict(), tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"a TorchScript archive .*give --model path.py:function"):
        tried(f"{tmp_path}/w.pt", tmp_path)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("inside", [None, "state_dict", "model"])
def test_weights_under_the_names_of_wrappers(prefix, inside, net, tmp_path):
    (tmp_path / "net.py").write_text(networks.SOURCE)
    state = {prefix + name: tensor for name, tensor in net.state_dict().items()}
    torch.save(state if inside is None else {inside: state, "epoch": 3}, tmp_path / "w.pth")
    evaluation = tried(f"{tmp_path}/net.py:build", tmp_path, weights=tmp_path / "w.pth")
    assert evaluation.notes == ()  # not a network that guesses


def test_weights_that_are_objects_are_not_unpickled(net, tmp_path):
    (tmp_path / "net.py").write_text(networks.SOURCE)
    torch.save(net, tmp_path / "whole.pt")
    with pytest.raises(UserError, match=r"a state_dict in .*; save it with torch.save\(model.state_d"):
        tried(f"{tmp_path}/net.py:build", tmp_path, weights=tmp_path / "whole.pt")


def test_weights_that_do_not_fit(tmp_path):
    (tmp_path / "net.py").write_text(networks.SOURCE)
    torch.save(nn.Linear(3, 3).state_dict(), tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"weights of this network in .*Missing key"):
        tried(f"{tmp_path}/net.py:build", tmp_path, weights=tmp_path / "w.pt")


@pytest.mark.parametrize("library", ["robustbench", "timm", "hf"])
def test_a_library_that_is_not_installed(library, tmp_path):
    package = {"hf": "transformers"}.get(library, library)
    with pytest.raises(UserError, match=rf"the library {package}, found none; pip install {package}"):
        tried(f"{library}:Carmon2019Unlabeled", tmp_path)


STAND_IN = {
    "robustbench": (
        "utils.py",
        "import autoattack, autoattack.state, pkg_resources\nfrom networks import trained\n\n\n"
        "def load_model(model_name, dataset, threat_model):\n"
        "    assert (dataset, threat_model) == ('digits', 'L2')\n"
        "    if model_name != 'Known':\n        raise KeyError(model_name)\n    return trained()\n",
    ),
    "timm": (
        "models.py",
        "from networks import trained\n\n\ndef create_model(name, pretrained):\n"
        "    assert pretrained\n    model = trained()\n"
        "    model.pretrained_cfg = {'mean': (0.0,), 'std': (1.0,)}\n    return model\n",
    ),
}


@pytest.mark.parametrize("library", STAND_IN)
def test_the_way_through_a_library(library, tmp_path, monkeypatch):
    """The plumbing only, through packages of the test's own: neither library is installed here."""
    file, source = STAND_IN[library]
    (tmp_path / library).mkdir()
    (tmp_path / library / file).write_text(source)
    again = "from timm.models import create_model\n" if library == "timm" else ""
    (tmp_path / library / "__init__.py").write_text(again)
    monkeypatch.syspath_prepend(tmp_path)
    evaluation = tried(f"{library}:Known", tmp_path, norm="l2")
    assert evaluation.about["model"] == f"{library}:Known"
    assert evaluation.notes == ()
    if library == "robustbench":
        with pytest.raises(UserError, match="Unknown in RobustBench for digits and L2, found KeyError"):
            tried("robustbench:Unknown", tmp_path, norm="l2")
        with pytest.raises(UserError, match=r"a norm of RobustBench \(linf, l2\), found l1"):
            tried("robustbench:Known", tmp_path, norm="l1")
    assert not {"autoattack", "pkg_resources"} & sys.modules.keys()
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        del sys.modules[name]


def test_the_command_says_it_in_one_line(tmp_path):
    (tmp_path / "net.py").write_text("def build(width):\n    pass\n")
    done = command("harness", "evaluate", "--model", "net.py:build", "--data", "digits", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: expected net.py:build to need no arguments")
