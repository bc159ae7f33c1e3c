"""Our models in RobustBench's form: its fields, the paper's number, ours, and how far to trust it."""

import copy
import json
import re

import numpy as np
import pytest
import yaml
from conftest import ROOT, command

from harness.core import paths
from harness.core.config import read_papers
from harness.evaluation.records import Record, read_artefact, read_records, write_records
from harness.evaluation.trust import write_checks
from harness.grid.build import registry
from harness.grid.plan import Plan
from harness.grid.robustbench import entries
from harness.reports.robustbench import model_info, write_entries

FIELDS = [  # of RobustBench's model_info files, in their order
    "link",
    "name",
    "authors",
    "venue",
    "additional_data",
    "number_forward_passes",
    "dataset",
    "architecture",
    "eps",
    "clean_acc",
    "reported",
    "autoattack_acc",
    "footnote",
    "unreliable",
]
AT = "cifar10_resnet18_at_Linf"


@pytest.fixture(scope="module")
def small(plan):
    grid = copy.deepcopy(plan.grid)
    tables = grid["artefacts"]
    grid["methods"]["mine"] = {"method": "at", "threat": "linf"}
    rows = ["nt", "at", "generalist_d_nt_linf@released", "mine"]
    both = {**tables["plusplus_table1"], "networks": ["resnet18"], "methods": ["at", "generalist_t"]}
    grid["artefacts"] = {
        "cvpr23_table1a": {**tables["cvpr23_table1a"], "methods": rows, "columns": ["NAT", "AA"]},
        "plusplus_table1": {**both, "columns": ["NAT", "AA_inf", "AA_2"]},
        "extra_released_protocol": {**tables["extra_released_protocol"], "methods": ["at"]},
    }
    return Plan(grid, plan.scale, "ci")


def store(plan, folder, checks):
    """Records, and the checks that every table would store."""
    results = folder / "results"
    for evaluation in plan.evaluations.values():
        records = {}
        for probe in evaluation.probes:
            share = 0.9 if probe.attack is None else 0.3 if "l2" in probe.id else 0.4
            correct = np.arange(60) < 60 * share
            stage = np.where(correct, -1, 0).astype(np.int8)
            steps = 20 if "pgd20" in probe.id else 0
            records[probe.id] = Record(correct, correct.astype(np.int16), stage, 1, steps, 1, 1)
        probes = {probe.id: {"dataset": probe.dataset} for probe in evaluation.probes}
        about = {"checks": checks, "probes": probes, "sources": {"digits": "embedded"}}
        write_records(paths.records(results, evaluation.id), records, {**about, "seconds": 1.0})
    for artefact in plan.artefacts.values():
        write_checks(plan, artefact, read_artefact(artefact, plan, results), folder / "reports")


def written(plan, folder, checks=()):
    store(plan, folder, list(checks))
    files = write_entries(plan, folder / "results", folder / "reports")
    return {path.stem: json.loads(path.read_text()) for path in files}


@pytest.fixture(scope="module")
def files(small, tmp_path_factory):
    return written(small, tmp_path_factory.mktemp("rb"))


def test_one_file_per_model_and_threat(small, files):
    assert sorted(files) == sorted(entries(small.artefacts))
    assert sorted(files) == [
        "cifar10_resnet18_at_L2",
        AT,
        "cifar10_resnet18_generalist_d_nt_linf-released_Linf",
        "cifar10_resnet18_generalist_t_L2",
        "cifar10_resnet18_generalist_t_Linf",
        "cifar10_resnet18_mine_Linf",
        "cifar10_resnet18_nt_Linf",
    ]


def test_the_fields_are_robustbench_s(files):
    at = files[AT]
    assert list(at) == FIELDS
    assert at["link"] == "https://arxiv.org/abs/1706.06083"
    assert at["authors"].startswith("Aleksander Madry")
    assert (at["additional_data"], at["number_forward_passes"]) == (False, 1)
    assert (at["clean_acc"], at["reported"], at["autoattack_acc"]) == ("90.00", "44.37", "40.00")
    assert at["unreliable"] is False


def test_what_was_really_measured_is_said(files):
    at, l2 = files[AT], files["cifar10_resnet18_at_L2"]
    assert (at["dataset"], at["architecture"], at["eps"]) == ("digits", "tiny", "36/255")
    assert "test scale, stand-in data" in at["footnote"]
    assert "AT for cifar10 with resnet18, run digits-tiny-at-s0-" in at["footnote"]
    assert "shortened budget (3 steps" in at["footnote"]
    assert (l2["eps"], l2["reported"], l2["autoattack_acc"]) == ("128/255", "56.99", "30.00")
    released = files["cifar10_resnet18_generalist_d_nt_linf-released_Linf"]
    assert "checkpoint selected on test data" in released["footnote"]
    assert released["reported"] == ""  # no paper prints this row


def test_at_paper_scale_the_real_names_stand():
    found = entries(Plan.read("paper").artefacts)
    (entry,) = [e for e in found[AT] if e.artefact.name == "cvpr23_table1a"]
    assert entry.eps == "8/255"
    assert {e.eps for some in found.values() for e in some if e.robust.dataset == "mnist"} == {"0.3"}


@pytest.mark.parametrize("scale", ["lite", "paper"])
def test_presets_that_come_to_the_same_training_are_one_file(scale):
    found = entries(Plan.read(scale).artefacts)
    assert all(len({(e.run, e.eps) for e in some}) == 1 for some in found.values())
    rows = [(some[0].run, some[0].eps, name.partition("-")[0]) for name, some in found.items()]
    assert len(rows) == len(set(rows))
    # Only at lite is the last epoch what the row AT deploys anyway.
    assert ("at@last" in {e.robust.method for e in found[AT]}) == (scale == "lite")


def test_papers_by_row_and_by_method(files):
    assert files["cifar10_resnet18_generalist_t_Linf"]["name"].startswith("Generalist++")
    assert files["cifar10_resnet18_nt_Linf"]["name"] == "Standardly trained model"


def test_every_method_has_a_paper(plan):
    papers = read_papers()
    assert set(papers["methods"]) == set(registry(plan.grid["registry"]))
    assert set(papers["rows"]) <= {*plan.grid["methods"], "generalist_d_nt_l2"}
    assert {*papers["rows"].values(), *papers["methods"].values()} == set(papers["papers"])


def test_labels_make_harmless_and_different_file_names(plan):
    """In a file's name Snakemake fills in {b} and <b>."""
    grid = copy.deepcopy(plan.grid)
    table = {k: v for k, v in grid["artefacts"]["cvpr23_table1a"].items() if k != "methods"}
    labels = ["a {b}", "a <b>", "a [b]*", "0.5, 1"]
    grid["axes"] = {"gamma": {label: {"gamma": [n / 9] * 4} for n, label in enumerate(labels)}}
    vary = [{"of": "generalist_d_nt_linf", "over": ["gamma"]}]
    grid["artefacts"] = {"cvpr23_table1a": {**table, "vary": vary, "columns": ["NAT", "AA"]}}
    names = list(entries(Plan(grid, plan.scale, "ci").artefacts))
    assert len(set(names)) == len(labels)
    assert all(re.fullmatch(r"[\w .,~+=()-]+", name) for name in names)
    assert names[-1] == "cifar10_resnet18_generalist_d_nt_linf~0.5, 1_Linf"


def test_a_method_of_one_s_own_goes_by_its_label(small, tmp_path):
    store(small, tmp_path, [])
    (entry,) = entries(small.artefacts)["cifar10_resnet18_mine_Linf"]
    path = paths.records(tmp_path / "results", small.evaluations[entry.run].id)
    records, _ = read_records(path, small.evaluations[entry.run])
    mine = model_info(small, entry, records, [], None, {**read_papers(), "methods": {}})
    assert (mine["name"], mine["authors"], mine["venue"]) == ("mine", "", "")


@pytest.mark.parametrize(
    ("check", "touched"),
    [
        ({"name": "usable gradients", "ok": False, "found": "none"}, {"Linf", "L2"}),
        ({"name": "sweep", "ok": False, "found": "rises", "norm": "l2"}, {"L2"}),
        ({"name": "fine", "ok": True, "found": "fine"}, set()),
    ],
)
def test_a_failed_check_makes_it_unreliable(check, touched, small, tmp_path):
    files = written(small, tmp_path, [check])
    for threat in ("Linf", "L2"):
        info = files[f"cifar10_resnet18_at_{threat}"]
        assert info["unreliable"] == (threat in touched)
        assert (check["name"] in info["footnote"]) == (threat in touched)


def test_the_command(small, tmp_path):
    store(small, tmp_path, [])
    grid = tmp_path / "grid.yaml"
    grid.write_text(yaml.safe_dump(dict(small.grid)))
    done = command("harness", "robustbench", "--scale", "ci", "--grid", str(grid), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{len(entries(small.artefacts))} files" in done.stdout
    assert (tmp_path / "reports" / "ci" / "robustbench" / f"{AT}.json").exists()


def test_the_workflow_makes_entries_and_claims_from_records(small, tmp_path):
    store(small, tmp_path, [])
    grid = tmp_path / "grid.yaml"
    grid.write_text(yaml.safe_dump(dict(small.grid)))
    profile = ["--workflow-profile", str(ROOT / "profiles" / "default")]
    words = ["--snakefile", str(ROOT / "Snakefile"), *profile, "--cores", "1"]
    words += ["claims", "robustbench", "leaderboard", "--config", "scale=ci", f"grid={grid}"]
    done = command("snakemake", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "results" / "models").exists()  # nothing was trained
    report = tmp_path / "reports" / "ci"
    assert "only_89_46" in (report / "claims.csv").read_text()
    assert (report / "claims.md").exists()
    assert len(list((report / "robustbench").glob("*.json"))) == len(entries(small.artefacts))
    assert "@inproceedings{madry2018," in (report / "leaderboard.html").read_text()


def test_other_radii_and_l_1_are_no_entries(plan):
    table = plan.artefact("extra_unseen")
    found = entries({"extra_unseen": table})
    assert {own.robust.column for some in found.values() for own in some} == {"AA_inf"}
    assert {"AA_1", "AA_inf_x0.5"} <= {cell.column for cell in table.cells}
