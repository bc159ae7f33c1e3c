"""What leaves the project says what the records say."""

import json
import sys
from dataclasses import replace
from fractions import Fraction
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from conftest import ROOT, command
from safetensors.torch import save_file

from harness.attacks.autoattack import Cascade, Component
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.core.errors import UserError
from harness.core.files import sha256
from harness.evaluation.evaluate import evaluate
from harness.grid.columns import EvalRun, Probe
from harness.models.networks import new_model
from harness.reports.export.card import robustbench, write_card
from harness.reports.export.evaluations import evaluations, named, numbers, read
from harness.reports.export.hub import push
from harness.reports.export.parquet import SCHEMA, write_parquet

RUN, N = "external-net-build-s0-0123456789", 12
BALL = Ball("linf", Fraction(8, 255))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """One network: natural, PGD, AutoAttack as a cascade and by its components in another ball."""
    folder = tmp_path_factory.mktemp("export")
    other = Ball("linf", Fraction(1, 20))
    attacks = [None, PGD(BALL, BALL.eps / 4, 3), Cascade.standard(BALL, steps=2, queries=5)]
    attacks += [
        Component(other, name, steps=2, queries=5) for name in ("apgd-ce", "apgd-t", "fab-t", "square")
    ]
    probes = tuple(Probe("digits", N, attack, N) for attack in attacks)
    model = new_model("tiny", 1, 10, seed=0).eval()
    weights = folder / "net" / "w.safetensors"
    weights.parent.mkdir()
    save_file(model.state_dict(), weights)
    torch.manual_seed(0)
    cpu = torch.device("cpu")
    evaluate(EvalRun(RUN, probes), model, sha256(weights.read_bytes()), folder, cpu)
    return folder


def test_an_evaluation_is_read_without_a_plan(results):
    (found,) = evaluations(results)
    assert found.run == RUN
    assert found.foreign
    titles = {(one.attack, one.eps): one for one in numbers(found)}
    left = titles["aa_linf", Fraction(1, 20)]
    parts = [one.flags for key, one in titles.items() if key[1] == left.eps and one is not left]
    assert len(parts) == 4
    assert np.array_equal(left.flags, np.logical_and.reduce(parts))
    natural = titles["natural", None]
    assert natural.n == N
    assert natural.low <= natural.accuracy <= natural.high


def test_the_name_of_an_evaluation(results):
    assert named(results, RUN).name.startswith(RUN)
    with pytest.raises(UserError, match=r"expected a known evaluation in .*, found 'external-nat'"):
        named(results, "external-nat")


def test_parquet_holds_every_flag(results, tmp_path):
    rows = write_parquet(tmp_path / "r.parquet", evaluations(results))
    table = pd.read_parquet(tmp_path / "r.parquet")
    (found,) = evaluations(results)
    assert list(table.columns) == list(SCHEMA)
    assert len(table) == rows == N * len(found.records)
    for name, record in found.records.items():
        own = table[table.probe == name].sort_values("image")
        for column in ("correct", "predicted", "broken_by"):
            assert np.array_equal(own[column], getattr(record, column))
        assert np.array_equal(own.label, found.about["labels"]["digits"])
    attacked = table[table.attack == "pgd3_linf"]
    assert attacked.eps.eq(8 / 255).all()
    assert table[table.attack == "natural"].eps.isna().all()


def test_a_probe_that_two_files_have_is_one(results, tmp_path):
    once = [*evaluations(results)]
    rows = write_parquet(tmp_path / "r.parquet", [*once, *once])
    assert rows == N * len(once[0].records)


def test_the_schema_is_documented_and_in_the_file(results, tmp_path):
    import pyarrow.parquet

    write_parquet(tmp_path / "r.parquet", evaluations(results))
    schema = pyarrow.parquet.read_schema(tmp_path / "r.parquet")
    text = (ROOT / "docs" / "export.md").read_text()
    for name, (kind, said) in SCHEMA.items():
        assert str(schema.field(name).type) == kind
        assert schema.field(name).metadata[b"description"].decode() == said
        assert f"| `{name}` | {kind} | {said} |" in text


def test_without_pyarrow_one_sentence(results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"expected the package pyarrow.*pip install 'generalist-bench"):
        write_parquet(tmp_path / "r.parquet", evaluations(results))


def test_robustbench_s_fields_of_one_evaluation(results):
    (found,) = evaluations(results)
    with pytest.raises(UserError, match="expected AutoAttack in linf once"):  # two radii
        robustbench(found, "linf", {})
    aa = {k: v for k, v in found.probes.items() if v.eps in (None, BALL.eps)}
    one = type(found)(found.name, found.run, aa, found.records, found.about)
    info = robustbench(one, "linf", {"name": "Mine", "architecture": "tiny"})
    by_title = {(n.attack, n.eps): n for n in numbers(one)}
    assert info["autoattack_acc"] == f"{by_title['aa_linf', BALL.eps].accuracy:.2f}"
    assert info["clean_acc"] == f"{by_title['natural', None].accuracy:.2f}"
    assert (info["name"], info["eps"], info["dataset"]) == ("Mine", "8/255", "digits")
    assert f"{N} test images" in info["footnote"]
    assert info["unreliable"] == any(check.norm in (None, "linf") for check in found.failed)


def test_the_card_beside_the_weights(results):
    (found,) = evaluations(results)
    path = write_card(found, results / "net" / "w.safetensors", results)
    text = path.read_text()
    _, front, body = text.split("---\n", 2)
    about = yaml.safe_load(front)
    (entry,) = about["model-index"][0]["results"]
    assert entry["dataset"]["type"] == "digits"
    shown = {m["name"]: m["value"] for m in entry["metrics"]}
    assert shown["AutoAttack, linf 8/255"] == next(
        n.accuracy for n in numbers(found) if n.attack == "aa_linf" and n.eps == BALL.eps
    )
    assert f"| {N} |" in body
    assert all(check.name in body for check in found.failed)
    assert write_card(found, results / "net" / "w.safetensors", results) == path  # again


def test_a_card_is_of_the_weights_that_were_evaluated(results, tmp_path):
    (found,) = evaluations(results)
    (tmp_path / "w.pt").write_bytes(b"others")
    ours = replace(found, about={**found.about, "trained": {"seconds": 1.0}})
    with pytest.raises(UserError, match="expected the weights of"):
        write_card(ours, tmp_path / "w.pt", results)
    mine = results / "net" / "mine"
    mine.mkdir()
    (mine / "README.md").write_text("my notes")
    (mine / "w.safetensors").write_bytes((results / "net" / "w.safetensors").read_bytes())
    with pytest.raises(UserError, match="one that this did not write"):
        write_card(found, mine / "w.safetensors", results)
    assert (mine / "README.md").read_text() == "my notes"


def test_a_model_of_ours_says_how_it_was_selected(tmp_path):
    """Lite's records and descriptions are in git."""
    path = next((ROOT / "results" / "records").glob("cifar10-small-at-s0-2bedfdc574-*"))
    found = read(path)
    assert not found.foreign
    titles = {(one.dataset, one.attack) for one in numbers(found)}
    assert ("cifar10", "aa_linf") in titles  # joined from its components
    assert all("/" not in dataset for dataset, _ in titles)


def test_push_up_to_the_network(results, monkeypatch):
    """The hub's client is the boundary: what it is asked, and that its refusal is one sentence."""
    asked = []

    class HfApi:
        def create_repo(self, **words):
            asked.append(("create_repo", words))

        def upload_folder(self, **words):
            asked.append(("upload_folder", words))
            if "refused" in words["repo_id"]:
                raise PermissionError("401")
            return "https://hub/me/net"

    stand_in = ModuleType("huggingface_hub")
    stand_in.HfApi = HfApi
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    folder = results / "net"
    (found,) = evaluations(results)
    write_card(found, folder / "w.safetensors", results)
    assert push(folder, "me/net", private=True) == "https://hub/me/net"
    (_, made), (_, sent) = asked
    assert made == {"repo_id": "me/net", "repo_type": "model", "private": True, "exist_ok": True}
    assert sent["folder_path"] == str(folder)
    assert {"README.md", "*.safetensors"} <= set(sent["allow_patterns"])
    with pytest.raises(UserError, match="the hub to take me/refused, found PermissionError: 401"):
        push(folder, "me/refused")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match="pip install huggingface_hub"):
        push(folder, "me/net")
    with pytest.raises(UserError, match="expected a model card"):
        push(results / "records", "me/net")


def test_the_commands(results, tmp_path):
    words = ["export", "parquet", "--results", str(results), "--to", str(tmp_path / "r.parquet")]
    done = command("harness", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"rows are in {tmp_path / 'r.parquet'}" in done.stdout
    words = ["--results", str(ROOT / "results"), "--norm", "l2", "--name", "AT", "--to", str(tmp_path)]
    model = "cifar10-small-at-s0-2bedfdc574"
    done = command("harness", "export", "robustbench", "--evaluation", model, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*_L2.json")
    assert json.loads(path.read_text())["name"] == "AT"
