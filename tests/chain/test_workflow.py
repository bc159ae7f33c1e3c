"""The whole chain through Snakemake, at the test scale, from another folder."""

import json
import os
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml
from conftest import ARTEFACT, METHODS, ROOT, said, snakemake

from harness.core import paths
from harness.core.config import CONFIG
from harness.grid.plan import Plan
from harness.grid.robustbench import entries
from harness.reports.manifest import CURRENT, Manifest, write_manifest


def planned(dry) -> dict[str, int]:
    """Job counts of a dry run."""
    counts = {}
    for line in said(dry).splitlines():
        words = line.split()
        if len(words) == 2 and words[0][-1] != ":" and words[1].isdigit():
            counts[words[0]] = int(words[1])
    return counts


def test_everything_is_built(built, grid):
    plan = Plan.read("ci", grid)
    report = built / "reports" / "ci"
    assert {path.suffix for path in (report / "tables").glob(f"{ARTEFACT}.*")} == {
        ".csv",
        ".md",
        ".tex",
        ".json",
    }
    page = (report / "index.html").read_text()
    assert "stand-in data" in page
    assert "Generalist-D (NT + ℓ∞)" in page
    trained = list((built / "results" / "logs" / "train").glob("*.log"))
    evaluated = list((built / "results" / "logs" / "evaluate").glob("*.log"))
    assert (len(trained), len(evaluated)) == (len(plan.runs), len(plan.evaluations))
    assert len(list((report / "robustbench").glob("*.json"))) == len(entries(plan.artefacts))
    assert len(pd.read_csv(report / "claims.csv")) > 25
    log = next((built / "results" / "logs" / "train").glob("*-nt-*.log")).read_text()
    assert "100 %" in log
    assert "left" in log


def test_the_data_are_reported(built, grid):
    done = snakemake("data", cwd=built, grid=grid)
    assert done.returncode == 0
    report = (built / "results" / "data" / "digits.txt").read_text()
    assert "digits test: 500 images, embedded" in report
    os.utime(built / "results" / "data" / "digits.txt")  # as if fetched again
    assert "Nothing to be done" in said(snakemake("-n", cwd=built, grid=grid))


def test_threads_limit_torch(built):
    for path in (built / "results" / "models").glob("*/run.json"):
        assert json.loads(path.read_text())["threads"] == 1


def test_nothing_is_left_to_do(built, grid):
    assert "Nothing to be done" in said(snakemake("-n", cwd=built, grid=grid))


def test_a_trained_model_needs_its_states_no_more(built, grid, tmp_path):
    states = list(built.glob("results/models/*/state-*.pt"))
    assert len(states) >= 2  # of AT and NT, from which the Generalists start
    for state in states:
        shutil.move(state, tmp_path / state.parent.name)
    try:
        assert "Nothing to be done" in said(snakemake("-n", cwd=built, grid=grid))
    finally:
        for state in states:
            shutil.move(tmp_path / state.parent.name, state)


def cloned(built, clone):
    """What git would keep of a build."""
    large = shutil.ignore_patterns("*.safetensors", "logs", "benchmarks", "data", ".snakemake")
    return shutil.copytree(built, clone, ignore=large, copy_function=shutil.copy)


def date_anew(clone):
    """As git writes files: one after the other, by name."""
    for path in sorted(clone.rglob("*")):
        os.utime(path)


def times(folder):
    found = [path for path in folder.rglob("*") if ".snakemake" not in path.parts]
    return {path: path.stat().st_mtime_ns for path in found if path.is_file()}


def test_a_dry_run_changes_no_file(built, grid, less, tmp_path):
    """Whether everything is current, a report is to be made again, or files are from the future."""
    clone = cloned(built, tmp_path / "clone")
    date_anew(clone)
    record = next((clone / "results" / "records").glob("*.npz"))
    os.utime(record, (time.time() + 1e6, time.time() + 1e6))
    before, config = times(clone), times(CONFIG)
    for wanted in (grid, less):
        assert snakemake("-n", cwd=clone, grid=wanted).returncode == 0
        assert (times(clone), times(CONFIG)) == (before, config)


def test_a_file_in_this_folder_may_go_by_its_whole_path(built, grid, tmp_path, monkeypatch):
    """As config/claims.yaml does where the workflow runs at the top of the repository."""
    clone = cloned(built, tmp_path / "clone")
    monkeypatch.chdir(clone)
    plan = Plan.read("ci", grid)
    runs = plan.artefact(ARTEFACT).runs
    records = [clone / paths.records(Path("results"), plan.evaluations[run].id) for run in runs]
    shown = [f"reports/ci/tables/{ARTEFACT}{end}" for end in (".csv", ".md", ".tex", ".json")]
    known = Manifest(plan, Path("reports"))
    assert known.state(ARTEFACT, map(str, records), shown) == CURRENT


def test_a_clone_of_reports_and_records_has_nothing_to_do(built, grid, tmp_path):
    """Git keeps neither times nor models; one row again, or an altered record, is another matter."""
    clone = cloned(built, tmp_path / "clone")
    date_anew(clone)
    assert "Nothing to be done" in said(snakemake("-n", cwd=clone, grid=grid))
    row = next((clone / "results" / "models").glob("*-nt-*/run.json")).relative_to(clone)
    counts = planned(snakemake("-n", "--forcerun", str(row), cwd=clone, grid=grid))
    assert counts["train"] == counts["evaluate"] == 1
    date_anew(clone)
    record = next((clone / "results" / "records").glob("*-nt-*.npz"))
    record.write_bytes(record.read_bytes() + b" ")
    counts = planned(snakemake("-n", cwd=clone, grid=grid))
    assert counts["table"] == counts["page"] == counts["manifest"] == 1


def test_a_record_older_than_its_model_and_all_that_shows_it_are_made_again(built, grid, tmp_path):
    noted = shutil.ignore_patterns(".snakemake")  # checksums, by which nothing has changed
    folder = shutil.copytree(built, tmp_path / "built", ignore=noted)
    model = next((folder / "results" / "models").glob("*-nt-*"))
    for path in model.iterdir():
        os.utime(path)
    counts = planned(snakemake("-n", cwd=folder, grid=grid))
    assert counts["evaluate"] == counts["table"] == counts["page"] == counts["manifest"] == 1
    assert "train" not in counts


@pytest.fixture
def less(grid, tmp_path):
    """The grid without one of its rows."""
    content = yaml.safe_load(grid.read_text())
    for entry in content["artefacts"].values():
        if "trades6" in entry.get("methods", ()):
            entry["methods"].remove("trades6")
    return written(content, tmp_path)


def written(content, folder):
    (folder / "grid.yaml").write_text(yaml.safe_dump(content))
    return folder / "grid.yaml"


def test_a_row_less_is_no_longer_shown_although_git_keeps_no_times(built, less, tmp_path):
    """Only the manifest can tell that a table was made of other records than are asked for."""
    clone = cloned(built, tmp_path / "clone")
    date_anew(clone)
    claims = (CONFIG / "claims.yaml").stat().st_mtime_ns
    counts = planned(snakemake("-n", cwd=clone, grid=less))
    assert counts["table"] == 1
    assert counts.keys().isdisjoint({"train", "evaluate"})
    assert (CONFIG / "claims.yaml").stat().st_mtime_ns == claims  # other builds read it too


@pytest.mark.parametrize("there", [True, False])
def test_a_row_more_is_shown_although_git_keeps_no_times(
    built, grid, less, tmp_path, there, monkeypatch
):
    """Its records may have been copied in, or nobody made them yet."""
    clone = cloned(built, tmp_path / "clone")
    monkeypatch.chdir(clone)
    write_manifest(Plan.read("ci", less), Path("results"), Path("reports"))
    if not there:
        for path in (clone / "results").glob("*/*-trades6-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    date_anew(clone)
    counts = planned(snakemake("-n", cwd=clone, grid=grid))
    assert counts["table"] == counts["page"] == 1
    assert counts["figure"] < len(list((clone / "reports" / "ci" / "figures").glob("*.csv")))
    assert counts.get("train", 0) == counts.get("evaluate", 0) == (0 if there else 1)
    assert counts.get("robustbench", 0) == 1


@pytest.mark.parametrize("change", [{"methods": METHODS[:2]}, {"title": "Another title"}])
def test_a_report_that_is_to_show_something_else_is_made_again(built, grid, tmp_path, change):
    """Out of models that are there already, so that no file tells of the change."""
    clone = cloned(built, tmp_path / "clone")
    date_anew(clone)
    content = yaml.safe_load(grid.read_text())
    content["artefacts"]["cvpr23_fig5a"].update(change)
    other = written(content, tmp_path)
    counts = planned(snakemake("-n", cwd=clone, grid=other))
    assert counts["figure"] == counts["page"] == counts["manifest"] == 1
    assert counts.keys().isdisjoint({"table", "robustbench", "train", "evaluate"})


def test_a_clone_believes_what_was_built_step_by_step(built, grid, tmp_path):
    """Where Snakemake has notes it does not judge claims anew that a change does not touch."""
    folder = shutil.copytree(built, tmp_path / "built")
    content = yaml.safe_load(grid.read_text())
    content["artefacts"]["cvpr23_fig5a"]["methods"] = METHODS[:2]
    other = written(content, tmp_path)
    done = snakemake(cwd=folder, grid=other)
    assert done.returncode == 0, said(done)
    clone = cloned(folder, tmp_path / "clone")
    date_anew(clone)
    assert "Nothing to be done" in said(snakemake("-n", cwd=clone, grid=other))


def test_one_artefact_by_name(built, grid):
    (built / "reports" / "ci" / "tables" / f"{ARTEFACT}.csv").unlink()
    dry = snakemake("-n", ARTEFACT, cwd=built, grid=grid)
    assert planned(dry) == {"table": 1, ARTEFACT: 1, "total": 2}
    assert snakemake(ARTEFACT, cwd=built, grid=grid).returncode == 0


def test_a_comment_retrains_nothing_and_a_hyper_parameter_its_runs_only(built, grid, tmp_path):
    edited = tmp_path / "grid.yaml"
    edited.write_text("# a comment\n" + grid.read_text())
    dry = snakemake("-n", cwd=built, grid=edited)
    assert "Nothing to be done" in said(dry)
    content = yaml.safe_load(grid.read_text())
    content["methods"]["trades6"]["beta"] = 5
    edited.write_text(yaml.safe_dump(content))
    dry = snakemake("-n", cwd=built, grid=edited)
    counts = planned(dry)
    assert counts["train"] == counts["evaluate"] == 1


def test_edited_code_retrains_nothing(built, grid):
    """Not even a newer module: what a run means is in its id."""
    module = ROOT / "harness" / "training" / "train.py"
    stamp = module.stat()
    try:
        os.utime(module, (time.time() + 60, time.time() + 60))
        dry = snakemake("-n", cwd=built, grid=grid)
        assert "Nothing to be done" in said(dry)
    finally:
        os.utime(module, (stamp.st_atime, stamp.st_mtime))


def test_a_failed_job_shows_its_sentence_and_harms_nothing(built, grid, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(built, folder)
    for path in (folder / "results" / "records").glob("*.npz"):
        path.write_bytes(path.read_bytes()[:50])
    (folder / "reports" / "ci" / "tables" / f"{ARTEFACT}.csv").unlink()
    models = {p: p.read_bytes() for p in (folder / "results" / "models").rglob("*.safetensors")}
    failed = snakemake(ARTEFACT, cwd=folder, grid=grid)
    assert failed.returncode != 0
    assert "delete it to compute it again" in said(failed)
    assert f"failed: table {ARTEFACT}, log: results/logs/table/ci-{ARTEFACT}.log" in failed.stderr
    assert "0 of 2 jobs done, 1 failed" in failed.stderr
    assert "Job stats" not in said(failed)
    newest = max((folder / ".snakemake" / "log").glob("*.log"))
    assert "Job stats" in newest.read_text()  # Snakemake's own lines
    assert all(path.read_bytes() == before for path, before in models.items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "cvpr23_tabel1a"], "did you mean 'cvpr23_table1a'"),
        (["-n", "mine"], "expected a known artefact"),
        (["-n", "reports/ci/tables/cvpr23_table1b.csv"], "did you mean 'cvpr23_table1a'"),
        (["-n", "reports/medium/tables/cvpr23_table1a.csv"], "expected a known scale"),
    ],
)
def test_mistyped_targets(words, message, built, grid):
    found = snakemake(*words, cwd=built, grid=grid)
    assert found.returncode != 0
    assert message in said(found)
