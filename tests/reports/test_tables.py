import copy

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from harness.attacks.autoattack import STANDARD, Cascade
from harness.core import paths
from harness.core.config import scales
from harness.core.errors import UserError
from harness.core.statistics import wilson
from harness.evaluation.records import Record, read_artefact, value, write_records
from harness.evaluation.trust import model_checks
from harness.grid.columns import Formula, Probe
from harness.grid.plan import Plan
from harness.papers.published import KEYS, published
from harness.reports.cells import cells, deviation
from harness.reports.tables import latex, markdown

GOLDEN = ROOT / "tests" / "golden"


def shown(artefact, read, plan):
    """An artefact's cells, with the checks that it would store."""
    checks = {run: model_checks(plan, artefact, run, own) for run, own in read.items()}
    return cells(artefact, read, checks, plan)


def made_up(plan, artefact):
    """Records whose accuracy is set by the run's place in the table: a table with known numbers."""
    records = {}
    for place, run in enumerate(artefact.runs):
        records[run] = {}
        for number, probe in enumerate(plan.evaluations[run].probes):
            correct = np.arange(60) < 50 - 3 * place - 2 * number
            broken_by = np.where(correct, -1, 0).astype(np.int8)
            steps = 20 if "pgd20" in probe.id else 0
            record = Record(correct, correct.astype(np.int16), broken_by, 1, steps, 1, 1)
            records[run][probe.id] = record
        probes = {probe.id: {"dataset": probe.dataset} for probe in plan.evaluations[run].probes}
        about = {"checks": [], "probes": probes, "sources": {"digits": "embedded"}, "labels": {}}
        records[run] = records[run], about
    return records


def small_plan(plan):
    grid = copy.deepcopy(plan.grid)
    entry = grid["artefacts"]["cvpr23_table1a"]
    entry["methods"] = ["nt", "at", "trades6", "generalist_d_nt_linf@released"]
    entry["columns"] = ["NAT", "PGD20"]
    grid["artefacts"] = {"cvpr23_table1a": entry}
    return Plan(grid, plan.scale, "ci")


def small_table(plan):
    small = small_plan(plan)
    artefact = small.artefact("cvpr23_table1a")
    return artefact, shown(artefact, made_up(small, artefact), small)


@pytest.fixture(scope="module")
def table(plan):
    return small_table(plan)


@pytest.mark.parametrize("whole", [True, False])
def test_a_table_of_a_subset_says_so(table, plan, whole):
    artefact = table[0]
    read = made_up(plan, artefact)
    test, train = ("local folder" if whole else f"local folder, subset {n} of 10" for n in (3, 4))
    for _, about in read.values():
        about.update(sources={"digits": test}, trained={"trained_on": {"source": train}})
    written = markdown(shown(artefact, read, plan), artefact, "notice")
    said = "Images of digits: local folder, subset 3 of 10; trained on local folder, subset 4 of 10."
    assert (said in written) is not whole
    assert ("Images" in written) is not whole


@pytest.mark.parametrize(
    ("source", "alike"),
    [
        ("generated (from digits: npm; seed 0)", True),  # rounded on another processor
        ("generated (from digits: npm; seed 0, frost procedural)", False),
        ("generated (from digits: npm; seed 0, revision 2)", False),
        ("official DIGITS-C", False),
    ],
)
def test_generated_images_are_compared_by_how_they_were_made(plan, tmp_path, source, alike):
    small = small_plan(plan)
    artefact = small.artefact("cvpr23_table1a")
    read = made_up(small, artefact)
    first = "generated (from digits: local folder; seed 0)"
    for run, origin in zip(artefact.runs, (first, source, source, source), strict=True):
        digest = "a" * 64 if run == artefact.runs[0] else "b" * 64
        about = {
            "run": run,
            "sources": {"digits-c/fog/3": origin},
            "sha256": {"digits-c/fog/3": digest},
        }
        write_records(paths.records(tmp_path, small.evaluations[run].id), read[run][0], about)
    if alike:
        assert read_artefact(artefact, small, tmp_path).keys() == set(artefact.runs)
    else:
        with pytest.raises(UserError, match="expected the same test images of digits-c/fog/3"):
            read_artefact(artefact, small, tmp_path)


def test_ours_beside_the_published(table):
    _, found = table
    row = found[(found.method == "at") & (found.column == "NAT")].iloc[0]
    assert row.published == 84.32
    assert row.difference == round(row.ours - 84.32, 2)
    assert row.n == 60
    assert row.low < row.ours < row.high
    assert row.runs.startswith("digits-tiny-at-s0-")


def test_the_best_two_are_marked(table):
    _, found = table
    for _, column in found.groupby("column"):
        ranked = column.sort_values("ours", ascending=False)
        assert list(ranked["mark"])[:3] == ["best", "second", ""]


@pytest.mark.parametrize(("view", "file"), [(markdown, "table.md"), (latex, "table.tex")])
def test_the_text_is_the_golden_one(table, view, file):
    artefact, found = table
    assert view(found, artefact, "a notice") == (GOLDEN / file).read_text()


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        ([1, 1], ""),
        ([3, 3], "mean ± deviation over 3 seeds"),
        ([3, 1], "mean ± deviation over seeds (3 of mnist, 1 of svhn)"),
    ],
)
def test_what_stands_behind_a_deviation(table, seeds, words):
    artefact, found = table
    other = [found.assign(dataset=n, seeds=s) for n, s in zip(["mnist", "svhn"], seeds, strict=True)]
    both = pd.concat(other)
    assert deviation(both) == words
    assert f"(published){', ' if words else ''}{words}; n = 60" in markdown(both, artefact, "")


def test_a_failed_check_says_where(table):
    artefact, found = table
    sound = found.assign(failed_checks="")
    assert "‡" not in markdown(sound, artefact, "")
    one = found[found.method == "at"].assign(dataset="svhn", failed_checks="a check; another")
    text = markdown(pd.concat([sound, one]), artefact, "")
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- AT, svhn: a check; another"
    ]


def test_numbers_selected_on_test_data_carry_a_dagger(table):
    artefact, found = table
    text = markdown(found, artefact, "a notice")
    assert "†" in next(line for line in text.splitlines() if "as its code runs" in line)


def test_every_published_number_is_there():
    values = pd.read_csv(ROOT / "reports" / "published" / "values.csv")
    assert len(values) == 1304


def test_the_papers_names_become_ours(plan):
    table = published(plan.artefact("plusplus_table1"), plan)
    assert len(table) == 180
    assert not table.duplicated(KEYS).any()
    at = table[(table.method == "at") & (table.network == "resnet18")].set_index("column").published
    assert at["mean_AA"] == pytest.approx((at["AA_inf"] + at["AA_2"]) / 2, abs=0.01)
    corrupted = published(plan.artefact("plusplus_table4"), plan)
    assert len(corrupted) == 120
    assert set(corrupted.dataset) == {"cifar10", "cifar100"}
    assert set(corrupted.column) == {"C5", "P"}


def test_formulas():
    def record(correct, predicted=None):
        correct = np.array(correct, dtype=bool)
        predicted = np.array(correct if predicted is None else predicted, np.int16)
        return Record(correct, predicted, np.zeros(len(correct), np.int8), 1, 0, 1, 0)

    records = {"a": record([1, 1, 0, 0]), "b": record([1, 0, 1, 0])}
    a, b = Formula("probe", ("a",)), Formula("probe", ("b",))
    assert value(Formula("all", (a, b)), records).tolist() == [True, False, False, False]
    assert value(Formula("mean", (a, b)), records).tolist() == [1, 0.5, 0.5, 0]
    assert Formula("mean", (Formula("all", (a, b)), a)).probes == ["a", "b", "a"]
    length = 16  # of digits-p/translate
    predicted = np.array([[3] * 8 + [5] * 8, [2] * 16])
    records["p"] = record((predicted == [[3], [2]]).ravel(), predicted.ravel())
    name = "digits-p/translate"
    assert value(Formula("frames", ("p",), name), records).tolist() == [0.5, 1]
    assert value(Formula("flips", ("p",), name), records).tolist() == [1 / (length - 1), 0]


def test_corrupted_columns_ask_for_every_corruption(plan):
    run = plan.artefact("plusplus_table4").runs[0]
    sets = [probe.dataset for probe in plan.evaluations[run].probes]
    assert sum(name.startswith("digits-c/") for name in sets) == 75
    assert sum(name.startswith("digits-p/") for name in sets) == 10
    assert {"digits", "digits-c", "digits-p", "digits20-c", "digits40-c"} <= set(plan.data_sets)
    column = plan.columns.resolved("C5", "digits", "as_named")
    formula, probes = column.formula, column.probes
    assert (formula.op, len(probes)) == ("mean", 15)
    flips, plain = (plan.columns.resolved(c, "digits", "as_named") for c in ("P_flips", "P"))
    assert (flips.lower_is_better, plain.lower_is_better) == (True, False)


def test_wilson_against_known_values():
    # Newcombe 1998, Table I: 81 of 263 and 0 of 20, score method
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("scale", scales())
def test_no_artefact_mixes_two_procedures_of_autoattack(scale):
    """Of each AutoAttack number, whatever column or union it is in: four records joined, or one."""

    def procedures(formula: Formula, probes: dict[str, Probe]) -> set[str]:
        if formula.op == "probe":
            attack = probes[formula.parts[0]].attack
            return {"cascade"} if isinstance(attack, Cascade) else set()
        inner = [part for part in formula.parts if isinstance(part, Formula)]
        names = [getattr(probes[p].attack, "name", "") for part in inner for p in part.probes]
        if formula.op == "all" and tuple(names) == STANDARD:
            return {"components"}
        return set().union(*(procedures(part, probes) for part in inner))

    plan = Plan.read(scale)
    for artefact in plan.artefacts.values():
        found = set()
        for cell in artefact.cells:
            probes = {p.id: p for run in cell.runs for p in plan.evaluations[run].probes}
            found |= procedures(cell.formula, probes)
        assert found == ({artefact.autoattack} if artefact.autoattack else set()), artefact.name


def test_a_column_of_another_name_changes_no_procedure():
    """APGD is APGD_ce again: a table that has both still joins the four components."""
    columns = Plan.read("smoke").columns
    eleven = ["NAT", "APGD_ce", "APGD_dlr", "APGD_t", "FAB_t", "Square", "AA"]
    assert columns.autoattack(eleven, "as_named") == "components"
    assert columns.autoattack([*eleven, "APGD"], "as_named") == "components"
    assert columns.autoattack(["NAT", "AA"], "as_named") == "cascade"
    assert columns.autoattack([*eleven, "AA_2"], "as_named") == "cascade"  # one for the whole table
    assert columns.autoattack(["mean_AA"], "as_named") == "cascade"
    assert columns.autoattack(["NAT", "PGD20"], "as_named") is None
