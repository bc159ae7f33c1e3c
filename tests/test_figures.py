"""Figures: what is drawn from which records, by which rule, without torch."""

import copy
import dataclasses
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, snakemake
from matplotlib import image
from test_tables import made_up

from harness.cells import cells
from harness.columns import Formula
from harness.errors import UserError
from harness.figures.__main__ import KINDS, write_figure
from harness.figures.images import chosen, predicted, tally
from harness.figures.source import Source
from harness.figures.style import PALETTE, look, pretty
from harness.plan import Plan
from harness.records import Record
from harness.runs import Watch


def figures(plan):
    return [artefact for artefact in plan.artefacts.values() if artefact.kind != "table"]


def record(correct, predicted):
    correct = np.array(correct, dtype=bool)
    return Record(
        correct, np.array(predicted, np.int16), np.zeros(len(correct), np.int8), 1, 0, 1, 0
    )


def test_the_papers_figures_are_all_planned():
    names = {artefact.name for artefact in figures(Plan.read("paper"))}
    cvpr23 = {f"cvpr23_fig{which}" for which in ("1", "3", "4a", "4b", "5a", "5b")}
    zipper = {f"zipper_fig{which}" for which in "567"}
    plusplus = {f"plusplus_fig{which}" for which in ("4", "5")}
    plusplus |= {f"plusplus_fig{n}{half}" for n in (1, 3, 6, 7, 8, 9, 10, 11) for half in "ab"}
    assert cvpr23 | zipper | plusplus <= names
    assert all(artefact.caption for artefact in figures(Plan.read("paper")))


def test_an_axis_makes_variants_and_the_default_is_the_method_itself(plan):
    artefact = plan.artefact("plusplus_fig5")
    assert [plan.label(row.method) for row in artefact.rows] == list("1234567")
    (default,) = [row for row in artefact.rows if plan.label(row.method) == "5"]
    assert default.runs == (plan.train_run("generalist_t", "cifar10", "resnet18", 0).id,)
    assert len(artefact.runs) == 7
    crossed = plan.artefact("cvpr23_fig3")
    assert len(crossed.rows) == 8 * 5
    assert crossed.panels[0].axes == ("gamma", "c_1_to_15")


def test_a_scale_may_vary_less_and_leave_out(plan):
    changed = {"cvpr23_fig3": {"vary": [{"of": "generalist_d_nt_linf", "over": ["stage", "b"]}]}}
    scale = {**plan.scale, "artefacts": changed, "left_out": {"plusplus_table3": "why"}}
    with pytest.raises(UserError, match="shares"):  # b is no field of two learners
        Plan(plan.grid, scale, "ci")
    changed["cvpr23_fig3"]["vary"][0]["over"] = ["stage", "c_1_to_15"]
    smaller = Plan(plan.grid, scale, "ci")
    assert len(smaller.artefact("cvpr23_fig3").rows) == 15
    assert "plusplus_table3" not in smaller.artefacts


@pytest.mark.parametrize(
    ("variation", "message"),
    [
        ({"of": "generalist", "over": ["b"]}, "expected a known method"),
        ({"of": "generalist_t", "over": ["bb"]}, "expected a known axis"),
    ],
)
def test_mistyped_variations(plan, variation, message):
    grid = copy.deepcopy(plan.grid)
    grid["artefacts"] = {
        "plusplus_fig4": {**grid["artefacts"]["plusplus_fig4"], "vary": [variation]}
    }
    with pytest.raises(UserError, match=message):
        Plan(grid, plan.scale, "ci")


def test_minutes_are_what_training_took(plan):
    artefact = plan.artefact("cvpr23_table4")
    read = made_up(plan, artefact)
    for place, run in enumerate(artefact.runs):
        read[run][1]["trained"] = {"seconds": 60.0 * (place + 1)}
    minutes = cells(artefact, read, plan).query("column == 'minutes'").set_index("method")
    assert minutes.ours.tolist() == [1, 2, 3]
    assert minutes["mark"].tolist() == ["best", "second", ""]
    assert minutes.loc["trades0.25"].published == 414
    assert minutes.n.isna().all()


def test_radii_scale_ball_and_step_together(plan):
    whole, half = (plan.columns.probe(name, "digits").attack for name in ("PGD20", "PGD20_x0.5"))
    assert half.ball.eps == whole.ball.eps / 2
    assert half.step == whole.step / 2


def test_moments_that_keep_images():
    """Zipper's epochs in its own budget; in a shorter one the epochs that they fall in, each once."""
    plan = Plan.read("paper")
    watch = plan.run(plan.artefact("zipper_fig6").runs[0]).watch

    def kept(epochs):
        return [e + 1 for e in range(epochs) if watch.keeps_images_after(e, epochs)]

    assert kept(120) == [75, 80, 85, 90, 94, 100, 120]
    assert kept(12) == [8, 9, 10, 12]
    assert kept(1) == [1]
    for wrong in ((), (Fraction(0),), (Fraction(121, 120),)):
        with pytest.raises(UserError, match="expected moments of a watch as shares of the run"):
            Watch(watch.attack, 10, wrong)


def test_a_method_looks_the_same_everywhere(plan):
    assert look(plan, "at") == look(plan, "at@official")
    slugs = list(plan.grid["labels"])
    looks = [tuple(look(plan, slug).values()) for slug in slugs]
    assert len(set(looks)) == len(slugs)
    assert {colour for colour, *_ in looks} == set(PALETTE)
    stars = {slug for slug in slugs if look(plan, slug)["marker"] == "*"}
    assert stars == {slug for slug in slugs if slug.startswith("generalist")}
    assert pretty("gamma_1 and AA_2") == r"$\gamma_1$ and AA $\ell_2$"
    assert pretty("AT (l_inf + l_2)") == r"AT ($\ell_\infty$ + $\ell_2$)"


def test_the_answer_under_several_attacks_is_the_first_one_that_breaks():
    records = {"a": record([1, 0, 1], [4, 7, 4]), "b": record([1, 0, 0], [4, 8, 9])}
    formula = Formula("all", (Formula("probe", ("a",)), Formula("probe", ("b",))))
    assert predicted(formula, records).tolist() == [4, 7, 9]


def test_images_are_chosen_by_the_rule(plan, monkeypatch):
    artefact = plan.artefact("cvpr23_fig5b")
    cells_of = [cell for cell in artefact.cells if cell.column == "NAT"]
    right = {cell.runs[0]: [1, 1, 1, 1] for cell in cells_of}
    nt, ours = cells_of[0].runs[0], cells_of[-1].runs[0]
    right[nt] = [1, 0, 0, 1]
    right[cells_of[1].runs[0]] = right[cells_of[2].runs[0]] = [1, 1, 0, 1]
    right[ours] = [1, 1, 1, 0]
    read = {
        cell.runs[0]: ({cell.formula.parts[0]: record(right[cell.runs[0]], [0] * 4)}, {})
        for cell in cells_of
    }
    source = Source(artefact, plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    assert chosen(source, cells_of).tolist() == [2, 1]  # the most others wrong first
    assert tally(source, cells_of).endswith(
        "are wrong: 1 of 4 images; wrong where most are right: 1"
    )
    assert chosen(source, cells_of[-1:]).tolist() == [0, 1, 2]  # a scale may have no others yet
    assert tally(source, cells_of[-1:]) == ""
    source = Source(plan.artefact("zipper_fig7"), plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    own = [cell for cell in plan.artefact("zipper_fig7").cells if cell.column == "NAT"]
    assert chosen(source, own).tolist() == [3]


@pytest.mark.parametrize(("name", "rows"), [("plusplus_fig8a", 8 * 5), ("cvpr23_fig5b", 2 * 8 * 5)])
def test_images_carry_every_answer(plan, name, rows, monkeypatch):
    artefact = plan.artefact(name)
    ours = artefact.show["right"]
    read = {run: ({}, {"labels": {"digits": np.arange(60) % 10}}) for run in artefact.runs}
    for cell in artefact.cells:
        right = np.full(60, cell.method in ours)
        for probe in cell.formula.probes:
            own = record(right, np.where(right, np.arange(60) % 10, 3))
            heat = np.zeros((60, 4, 4), np.uint8)
            read[cell.runs[0]][0][probe] = dataclasses.replace(own, heat=heat)
    source = Source(artefact, plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    figure, drawn = KINDS[artefact.kind](source)
    assert len(drawn) == rows
    assert (drawn[drawn.method.isin(ours)].predicted == drawn[drawn.method.isin(ours)].label).all()
    assert (drawn[~drawn.method.isin(ours)].predicted == 3).all()
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "3 ✗" in texts
    assert "4 ✓" in texts


def test_every_kind_is_drawn_through_the_workflow(built, grid):
    drawn = figures(Plan.read("ci", grid))
    assert {artefact.kind for artefact in drawn} == set(KINDS)
    for artefact in drawn:
        stem = built / "reports" / "ci" / "figures" / artefact.name
        pixels = image.imread(stem.with_suffix(".png"))
        assert pixels.std() > 0.01, artefact.name
        assert stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        table = pd.read_csv(stem.with_suffix(".csv"))
        assert len(table) or artefact.show, artefact.name  # images may fit no rule at this scale
        assert set(table.get("run", table.get("runs"))) <= set(artefact.runs), artefact.name


def test_one_figure_by_name_without_torch_and_to_the_byte(built, grid, tmp_path):
    path = built / "reports" / "ci" / "figures" / "cvpr23_fig1.png"
    before = path.read_bytes()
    path.unlink()
    done = snakemake("cvpr23_fig1", cwd=built, grid=grid)
    assert done.returncode == 0
    assert "Finished jobid: 0 (Rule: cvpr23_fig1)" in done.stderr + done.stdout
    assert "rule train" not in done.stderr + done.stdout
    assert path.read_bytes() == before
    code = (
        "import sys; from pathlib import Path; from harness.figures.__main__ import write_figure;"
        f"from harness.plan import Plan; plan = Plan.read('ci', Path({str(grid)!r}));"
        f"[write_figure(plan, n, Path({str(built / 'results')!r}), Path({str(tmp_path)!r}))"
        " for n, a in plan.artefacts.items() if a.kind != 'table'];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_figure_of_training_without_its_history(plan, tmp_path):
    with pytest.raises(UserError, match=r"found no run.json; train it first"):
        write_figure(plan, "extra_mixing", tmp_path, tmp_path)
