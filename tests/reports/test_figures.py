"""Figures: what is drawn from which records, by which rule, without torch."""

import copy
import dataclasses
import subprocess
import sys
import types
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, snakemake
from matplotlib import image
from test_tables import made_up, shown
from threadpoolctl import threadpool_limits

from harness.core import paths
from harness.core.errors import UserError
from harness.core.files import write_arrays
from harness.core.paths import AFTER, write_description
from harness.core.statistics import interval
from harness.evaluation.records import Record
from harness.grid.columns import Formula
from harness.grid.plan import Plan
from harness.reports.figures import curves, line, theory
from harness.reports.figures.draw import KINDS, write_figure
from harness.reports.figures.embedding import embedded
from harness.reports.figures.images import chosen, predicted, tally
from harness.reports.figures.source import Source
from harness.reports.figures.style import look, pretty
from harness.training.runs import Watch


def figures(plan):
    return [artefact for artefact in plan.artefacts.values() if artefact.kind != "table"]


def record(correct, predicted):
    correct = np.array(correct, dtype=bool)
    return Record(correct, np.array(predicted, np.int16), np.zeros(len(correct), np.int8), 1, 0, 1, 0)


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
    grid["artefacts"] = {"plusplus_fig4": {**grid["artefacts"]["plusplus_fig4"], "vary": [variation]}}
    with pytest.raises(UserError, match=message):
        Plan(grid, plan.scale, "ci")


def test_minutes_are_what_training_took(plan):
    artefact = plan.artefact("cvpr23_table4")
    read = made_up(plan, artefact)
    for place, run in enumerate(artefact.runs):
        read[run][1]["trained"] = {"seconds": 60.0 * (place + 1)}
    minutes = shown(artefact, read, plan).query("column == 'minutes'").set_index("method")
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
    assert len({colour for colour, *_ in looks}) == len(slugs)
    by_method = ("scatter", "radii", "classes")  # the other kinds number their lines
    for artefact in figures(Plan.read("paper")):
        if artefact.kind in by_method:
            methods = dict.fromkeys(row.method for row in artefact.rows)
            colours = {look(plan, method)["color"] for method in methods}
            assert len(colours) == len(methods), artefact.name
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
    assert tally(source, cells_of).endswith("are wrong: 1 of 4 images; wrong where most are right: 1")
    assert chosen(source, cells_of[-1:]).tolist() == [0, 1, 2]  # a scale may have no others yet
    assert tally(source, cells_of[-1:]) == ""
    source = Source(plan.artefact("zipper_fig7"), plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    own = [cell for cell in plan.artefact("zipper_fig7").cells if cell.column == "NAT"]
    assert chosen(source, own).tolist() == [3]


@pytest.mark.parametrize(
    ("name", "rows", "shown"),
    [("plusplus_fig8a", 60 * 5, 8 * 5), ("cvpr23_fig5b", 2 * 8 * 5, 2 * 8 * 5)],
)
def test_images_carry_every_answer(plan, name, rows, shown, monkeypatch):
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
    assert (len(drawn), drawn.shown.sum()) == (rows, shown)
    assert (drawn[drawn.method.isin(ours)].predicted == drawn[drawn.method.isin(ours)].label).all()
    assert (drawn[~drawn.method.isin(ours)].predicted == 3).all()
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "3 ✗" in texts
    assert "4 ✓" in texts


def test_what_the_text_says_of_one_picture_is_a_line_of_the_csv(monkeypatch):
    """PART takes an airplane for a bird (Generalist++, VII-B), on an image that is not shown."""
    plan = Plan.read("paper")
    artefact, labels = plan.artefact("plusplus_fig8a"), np.array([5] * 11 + [0])
    assert artefact.show["right"] == ["generalist_d_nt_linf", "generalist_t"]
    baselines = {"part": 2, "fat": 3, "agr": 0}  # what each of them says of the last image
    read = {}
    for cell in artefact.cells:
        said = labels.copy()
        if cell.method in baselines:  # wrong on all others, so that these are shown
            said[:-1], said[-1] = 7, baselines[cell.method]
        own = record(said == labels, said)
        heat = dataclasses.replace(own, heat=np.zeros((12, 4, 4), np.uint8))
        about = {"labels": {"cifar10": labels}}
        read[cell.runs[0]] = ({cell.formula.parts[0]: heat}, about)
    source = Source(artefact, plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    images = types.SimpleNamespace(x=np.zeros((12, 3, 4, 4)))
    monkeypatch.setitem(source.__dict__, "images", images)
    _, drawn = KINDS["heatmaps"](source)
    drawn = drawn.set_index("method")
    found = drawn[(drawn.label_name == "airplane") & (drawn.predicted_name == "bird")]
    assert (found.index.tolist(), found.image.tolist()) == (["part"], [11])
    assert not found.shown.any()
    assert (drawn.loc["agr"].predicted_name == "airplane").sum() == 1


def test_the_rows_of_generalist_plusplus_figures_7_and_8(plan):
    """As sections VII-A and VII-B name them."""
    rows = {
        "plusplus_fig7a": ["iat", "part", "agr", "generalist_d_nt_linf", "generalist_t"],
        "plusplus_fig7b": ["msd", "eat", "rmc", "generalist_d_linf_l2", "generalist_t"],
        "plusplus_fig8a": ["part", "fat", "agr", "generalist_d_nt_linf", "generalist_t"],
        "plusplus_fig8b": ["eat", "rmc", "generalist_d_linf_l2", "generalist_t"],
    }
    for name, methods in rows.items():
        assert [row.method for row in plan.artefact(name).rows] == methods
        right = set(plan.artefact(name).show.get("right", ()))
        assert right in (set(), {method for method in methods if method.startswith("generalist")})
    assert plan.artefact("plusplus_fig7b").columns == ("mean_AA", "true_union")


def test_no_figure_of_a_scale_loses_all_its_rows():
    for scale in ("ci", "smoke", "lite", "paper"):
        for artefact in Plan.read(scale).artefacts.values():
            assert artefact.rows, (scale, artefact.name)
            assert all(artefact.show.values()), (scale, artefact.name)


def test_the_classes_of_a_mean_column(plan, monkeypatch):
    """An image counts a half under one attack of two, and nothing in the true union."""
    artefact = plan.artefact("plusplus_fig7b")
    labels = np.array([3] * 4 + [8] * 6)
    linf, l2 = [1, 1, 0, 0] + [1] * 6, [1, 0, 1, 0] + [1] * 6
    read = {run: ({}, {"labels": {"digits": labels}}) for run in artefact.runs}
    for cell in artefact.cells:
        first, second = (part.probes for part in cell.formula.parts)
        assert not set(first) & set(second)
        for probes, right in ((first, linf), (second, l2)):
            own = {probe: record(right, labels) for probe in probes}
            read[cell.runs[0]][0].update(own)
    source = Source(artefact, plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    figure, drawn = KINDS["classes"](source)
    table = drawn[drawn.method == "msd"].set_index(["column", "class"])
    assert table.ours.to_dict() == {
        ("mean_AA", "3"): 50, ("mean_AA", "8"): 100, ("true_union", "3"): 25, ("true_union", "8"): 100
    }  # fmt: skip
    for column, values in (("mean_AA", [1, 0.5, 0.5, 0]), ("true_union", [1, 0, 0, 0])):
        ends = [round(100 * end, 2) for end in interval(np.array([values]))]
        assert table.loc[(column, "3"), ["low", "high", "n"]].tolist() == [*ends, 4]
    assert [axes.get_ylabel() for axes in figure.axes] == ["mean_AA (%)", "true_union (%)"]


def test_the_increasing_trend_is_the_printed_one():
    """Zipper A.9 and Table 9; Figure 9a's point is the run of that table."""
    plan = Plan.read("paper")
    (row,) = [r for r in plan.artefact("plusplus_fig9a").rows if plan.label(r.method) == "increasing"]
    printed = "generalist_d_nt_linf_gamma_0.25_0.5_0.75_1"
    assert row.runs == (plan.train_run(printed, "cifar10", "resnet18", 0).id,)
    assert plan.run(row.runs[0]).method.gamma == (0.25, 0.5, 0.75, 1)


def test_curves_show_the_learners_before_and_after_where_they_differ(plan, monkeypatch):
    artefact, before = plan.artefact("extra_distance"), [0.8, 0.5, 0.002]
    after = [np.nan, 0.0, 0.002]  # nothing due; overwritten; an average that survives
    quantities = ("theorem2", "theorem2_mean", "distance_at", "distance_nt")
    history = pd.DataFrame({"epoch": [1, 2, 3]} | {name: before for name in quantities})
    for name in quantities:
        history[f"{name}{AFTER}"] = after
    monkeypatch.setattr(curves, "read_history", lambda *_: history)
    figure, drawn = KINDS["curves"](Source(artefact, plan, ROOT))
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == [
        "Theorem 2's term",
        "distance / norm",
    ]
    panel = figure.axes[0]
    assert panel.get_legend_handles_labels()[1] == [
        "around the global learner",
        "around the learners' mean",
    ]
    line, hollow = panel.lines[:2]
    assert line.get_ydata().tolist() == before
    assert (hollow.get_xdata().tolist(), hollow.get_ydata().tolist()) == ([2], [0])
    assert hollow.get_markerfacecolor() == "none"
    assert hollow.get_color() == line.get_color()
    legends = [axes.get_legend() for axes in figure.axes[:3]]  # one for the row, beside it
    assert legends[:2] == [None, None]
    words = [text.get_text() for text in legends[2].texts]
    assert [word.partition(":")[0] for word in words[2:]] == ["line", "hollow"]
    kept = drawn[(drawn.quantity == f"theorem2{AFTER}") & (drawn.method == "generalist_t")]
    assert kept.value.tolist() == [0, 0.002]
    monkeypatch.setattr(curves, "read_history", lambda *_: history[["epoch", "distance_at"]])
    with pytest.raises(UserError, match=r"expected theorem2 in .*history.csv, found no such column"):
        KINDS["curves"](Source(artefact, plan, ROOT))


def test_learners_show_both_series(plan, monkeypatch):
    artefact = plan.artefact("zipper_fig5")
    history = pd.DataFrame({"epoch": [1, 2], "distance_at": [1, 1], f"distance_at{AFTER}": [0, 0]})
    history = history.assign(**{"natural:at": [0.5, 0.75], f"natural:at{AFTER}": [np.nan, 0.25]})
    history = history.assign(**{"robust:at<-nt": [0.25, 0.5], f"robust:at<-nt{AFTER}": [np.nan, 0.5]})
    monkeypatch.setattr(curves, "read_history", lambda *_: history)
    monkeypatch.setattr(Source, "trace", lambda *_: {"1:at": np.zeros((8, 1, 4, 4))})
    figure, drawn = KINDS["learners"](Source(artefact, plan, ROOT))
    natural, robust = figure.axes
    assert [line.get_ydata().tolist() for line in natural.lines] == [[50, 75], [25]]
    assert robust.lines[1].get_ydata().tolist() == []  # nothing changed there
    labels = [text.get_text() for text in natural.get_legend().texts]
    assert labels[:2] == ["AT learner", "line: as the epoch ends"]
    assert labels[2].startswith("hollow")
    assert set(drawn.quantity) == {name for name in history if name.startswith(("nat", "rob"))}


@pytest.fixture
def trace(plan, tmp_path):
    """A figure of a watched run that kept images, the run's id, and what it kept."""
    artefact = plan.artefact("zipper_fig6")
    run = plan.run(artefact.runs[0])
    write_description(tmp_path, run.id, {}, [{"epoch": 1, "distance_at": 1.0, "distance_nt": 2.0}])
    last = run.recipe.epochs
    kept = [epoch + 1 for epoch in range(last) if run.watch.keeps_images_after(epoch, last)]
    names = [f"{epoch}:{name}" for epoch in kept for name in ("at", "nt")]
    images = dict.fromkeys(names, np.zeros((20, 1, 8, 8), np.uint8))
    return Source(artefact, plan, tmp_path), run.id, images


def test_the_images_of_a_watched_run(trace):
    source, run, images = trace
    write_arrays(paths.trace(source.results, run), images)
    assert source.trace(run).keys() == images.keys()


@pytest.mark.parametrize(
    "change",
    [
        lambda image: np.zeros((10**5, 1, 8, 8), np.uint8),  # more than the watch has examples
        lambda image: image.astype(np.float32),
        lambda image: image[:, :, :4],
        None,
    ],
)
def test_other_images_of_a_watched_run_are_refused(change, trace):
    source, run, images = trace
    first = next(iter(images))
    changed = {**images, first: change(images[first])} if change else {}
    write_arrays(paths.trace(source.results, run), changed)
    with pytest.raises(UserError, match=r"trace\.npz, found .*; delete"):
        source.trace(run)


def test_an_embedding_does_not_depend_on_the_threads():
    images = np.random.default_rng(0).integers(0, 256, (300, 3, 8, 8), np.uint8)
    with threadpool_limits(1):
        one = embedded(images)
    with threadpool_limits(4):
        assert np.array_equal(embedded(images), one)


def test_every_kind_is_drawn_through_the_workflow(built, grid):
    drawn = figures(Plan.read("ci", grid))
    assert {artefact.kind for artefact in drawn} == set(KINDS)
    for artefact in drawn:
        stem = built / "reports" / "ci" / "figures" / artefact.name
        pixels = image.imread(stem.with_suffix(".png"))
        assert pixels.std() > 0.01, artefact.name
        assert stem.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        assert b"prefers-color-scheme: dark" in stem.with_suffix(".svg").read_bytes()
        table = pd.read_csv(stem.with_suffix(".csv"))
        assert len(table) or artefact.show, artefact.name  # images may fit no rule at this scale
        named = table.get("run", table.get("runs"))
        if named is None:  # a comparison of methods
            assert {row.method for row in artefact.rows}.intersection(table.method), artefact.name
        else:
            assert set(named.dropna()) <= set(artefact.runs), artefact.name  # an area has none


def test_one_figure_by_name_without_torch_and_to_the_byte(built, grid, tmp_path):
    path = built / "reports" / "ci" / "figures" / "cvpr23_fig1.png"
    before = path.read_bytes()
    path.unlink()
    done = snakemake("cvpr23_fig1", cwd=built, grid=grid)
    assert done.returncode == 0
    assert "2 of 2 jobs done, in" in done.stderr  # the figure and its name, no training
    assert path.read_bytes() == before
    code = (
        "import sys; from pathlib import Path; from harness.reports.figures.draw import write_figure;"
        f"from harness.grid.plan import Plan; plan = Plan.read('ci', Path({str(grid)!r}));"
        f"[write_figure(plan, n, Path({str(built / 'results')!r}), Path({str(tmp_path)!r}))"
        " for n, a in plan.artefacts.items() if a.kind != 'table'];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_figure_of_training_without_its_history(plan, tmp_path):
    with pytest.raises(UserError, match=r"found no run.json; train it first"):
        write_figure(plan, "extra_mixing", tmp_path, tmp_path)


def test_agreement_counts_pairs_on_the_same_images(plan, monkeypatch):
    artefact, labels = plan.artefact("extra_agreement"), np.zeros(60, int)
    fails = {"at": slice(0, 30), "nt": slice(0, 0), "fat": slice(20, 40)}  # all others: none
    read = {run: ({}, {"labels": {"digits": labels}}) for run in artefact.runs}
    for cell in artefact.cells:
        right = np.ones(60, bool)
        right[fails.get(cell.method, slice(0, 0))] = False
        own = {probe: record(right, labels) for probe in cell.formula.probes}
        read[cell.runs[0]][0].update(own)
    source = Source(artefact, plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    figure, drawn = KINDS["agreement"](source)
    rows = len(artefact.rows)
    assert len(drawn) == len(artefact.columns) * (rows + rows * (rows - 1) // 2)
    pair = drawn.set_index(["column", "method", "other"]).loc["NAT", "at", "fat"]
    assert pair.iloc[:5].tolist() == [10, 20, 10, 20, 10.0]  # by chance: 60 * 1/2 * 1/3
    at, fat = [row.method for row in artefact.rows].index("at"), 3
    assert artefact.rows[fat].method == "fat"
    image = figure.axes[0].images[0].get_array()
    assert (image[at, at], image[at, fat], image[fat, at]) == (50, 100 * 10 / 60, 50)


def test_effects_add_up_on_the_same_images(plan, monkeypatch):
    artefact = plan.artefact("extra_switches")
    right = {row.method: np.arange(60) < 30 for row in artefact.rows}
    parts = [method for method in right if "~" in method]
    for place, method in enumerate(parts[:3]):
        right[method] = np.arange(60) < 33 + 3 * place  # 5, 10 and 15 points more
    right["generalist_d_nt_linf@released"] = np.arange(60) < 45  # 25 more, 5 less than the sum
    read = {run: ({}, {"labels": {"digits": np.zeros(60, int)}}) for run in artefact.runs}
    for cell in artefact.cells:
        own = {probe: record(right[cell.method], np.zeros(60)) for probe in cell.formula.probes}
        read[cell.runs[0]][0].update(own)
    source = Source(artefact, plan, ROOT)
    monkeypatch.setitem(source.__dict__, "records", read)
    figure, drawn = KINDS["effects"](source)
    found = drawn[drawn.column == "NAT"].set_index("label").ours
    assert found.iloc[:3].tolist() == [5, 10, 15]
    assert found["sum of the above"] == 30
    assert found["Generalist-D (NT + l_inf), as its code runs"] == 25
    assert found["that minus the sum"] == -5
    assert len(figure.axes[0].get_yticklabels()) == len(found) == len(parts) + 3


def test_lines_and_theory_show_what_histories_hold(plan, monkeypatch):
    columns = {
        f"line_natural:at>nt:{share}": [np.nan, own] for share, own in (("0.000", 0.5), ("1.000", 0.9))
    }
    columns |= {name.replace("natural", "robust"): own for name, own in columns.items()}
    for name in ("learners", "mixture", "global"):
        columns |= {f"risk_{kind}:{name}": [2.0, 1.0] for kind in ("natural", "robust")}
    history = pd.DataFrame({"epoch": [1, 2], "theorem2": [0, 3], "theorem2_mean": [0, 1]} | columns)
    for module in (line, theory):
        monkeypatch.setattr(module, "read_history", lambda *_: history)
    monkeypatch.setattr(Source, "trace", lambda *_: {"2:at": np.zeros((40, 1, 8, 8))})
    figure, drawn = KINDS["line"](Source(plan.artefact("extra_barrier"), plan, ROOT))
    assert drawn.n.unique().tolist() == [40]
    assert drawn.epoch.unique().tolist() == [2]
    assert drawn[(drawn.kind == "natural") & (drawn.share == 1)].ours.unique().tolist() == [90]
    assert len(figure.axes) == 2 * len(plan.artefact("extra_barrier").rows)
    figure, drawn = KINDS["theory"](Source(plan.artefact("extra_theory"), plan, ROOT))
    assert len(drawn) == 2 * 2 * (3 + 3 + 2 + 2)
    assert (drawn[drawn.quantity == "step_natural"].value == 0).all()
    assert [axes.get_title(loc="left") for axes in figure.axes[:4]][3] == "Theorem 2's term"
