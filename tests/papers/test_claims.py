"""Claims: how they are read, their verdicts on printed numbers, and the report."""

import shutil

import pytest
import yaml
from conftest import ROOT, command
from small_table import ARTEFACT, BEST, METHODS, PLACE, claimed, reports_of, small_plan, store

from harness.core.config import read_claims
from harness.core.errors import UserError
from harness.grid.plan import Plan
from harness.papers.claims import judge, markdown, parse, read, runs
from harness.papers.comparisons import Comparison, MissingError, Number, comparisons
from harness.papers.measured import Measured
from harness.papers.printed import Printed
from harness.papers.published import Papers
from harness.papers.verdicts import Verdict
from harness.reports.page.artefacts import verdicts as on_page
from harness.reports.page.render import environment


@pytest.fixture(scope="module")
def small(plan):
    return small_plan(plan)


# --- reading


def test_a_group_a_pattern_and_a_mean(small):
    parts = [
        {**BEST, "columns": [["NAT", "PGD20"]]},
        {"better": "at", "than": "*t", "columns": ["NAT"], "in": [PLACE]},
    ]
    (claim,) = parse(claimed(*parts), small)
    pairs = [(c.one.method, c.other.method) for c in comparisons(claim.tree)]
    assert pairs == [("trades6", "at"), ("trades6", "fat"), ("at", "nt"), ("at", "fat")]
    assert next(comparisons(claim.tree)).one.columns == ("NAT", "PGD20")
    assert set(runs(small, [claim])) == set(small.runs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("in", ["cvpr23_table1a"]), "a place artefact/data set/network"),
        (("columns", "NAT"), "a list of columns"),
        (("better", 3), "a method, a group"),
        (("then", "at"), "only than, columns, .* beside better"),
        (("classes", "cat"), "each, or a list of classes"),
        (("most_in", [["cat"]]), "expected a class"),
        (("where_wrong", "at"), "beside better"),
        (("deviation_below", 0.5), "one of better|beside better"),  # two relations
    ],
)
def test_a_mistake_in_the_claims(change, message, tmp_path):
    content = claimed({**BEST, change[0]: change[1]})
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=message):
        read_claims(path)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"columns": ["NAT"]}, "one of better"),
        ({"peak": ["nt", "at"], "columns": ["NAT"]}, "three rows or more"),
        ({"harder": ["cat"], "than": ["dog"], "columns": ["NAT"]}, "'methods' is a dependency"),
        (
            {"harder": ["cat"], "than": "dog", "methods": ["at"], "columns": ["NAT"]},
            "a list of classes at claims.0.all_of.0.than",
        ),
        (
            {"deviation_below": 0, "methods": ["at"], "columns": ["NAT"]},
            r"more than 0 at claims.*found 0",
        ),
        ({"above": 50, "columns": ["NAT"]}, "methods and columns beside above"),
        ({**BEST, "classes": "each", "most_in": ["cat"]}, "classes or most_in, not both at claims"),
    ],
)
def test_half_a_relation_is_refused(part, message, tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(claimed({**part, "in": "here"})))
    with pytest.raises(UserError, match=message):
        read_claims(path)


def test_unknown_places_are_named(small):
    with pytest.raises(UserError, match="did you mean 'here'"):
        parse(claimed({**BEST, "in": "heer"}), small)


# --- on printed numbers


@pytest.fixture(scope="module")
def on_paper(plan):
    return judge(plan, read(plan), ROOT / "nowhere", ROOT / "nowhere").set_index("id")


@pytest.mark.parametrize(
    ("claim", "verdict", "numbers"),
    [
        ("natural_highest", "holds", "89.09 against 87.88 (TRADES (lambda = 1))"),
        ("only_89_46", "holds", "46.07, claimed above 46"),
        ("mnist_svhn_best", "fails", "45.41 against 45.52 (TRADES)"),
        ("cifar100_tradeoff", "holds", "23.96 against 23.87 (AT)"),
        ("trades_at_89", "holds", "30.20, claimed below 31"),
        ("faster_than_trades", "holds", "342.00 against 397.00"),
        ("mean_aa_best", "holds", "33.38 against 32.00"),
        ("true_union_best", "no number", "no true_union"),
        ("t_exceeds_each_aspect", "fails", "of 288 comparisons 276 true, 12 false"),
        ("ood_t_beats_d", "holds", "difference +0.02"),
        ("imagenet_all", "fails", "68.36 against 68.46"),
        ("increasing_gamma", "holds", "47.15 against 46.07"),
        ("c_five", "no number", "the papers print no number for plusplus_fig5"),
        ("ema_helps", "no number", "values.csv has no generalist_d_nt_linf (2 comparisons)"),
        ("hard_classes", "no number", "the papers print no number for plusplus_fig7a (20"),
        (
            "deviations_of_d",
            "holds where printed (6 of 9 comparisons)",
            "deviation of PGD100 over seeds, cifar10, resnet18: Generalist-D, learners side by side"
            " 0.44, claimed below 0.5 (of 6 comparisons 6 true)",
        ),
    ],
)
def test_published_verdicts(claim, verdict, numbers, on_paper):
    row = on_paper.loc[claim]
    assert row.published_verdict == verdict
    assert numbers in row.published_numbers


def test_every_claim_has_a_verdict_with_numbers_on_both_sides(on_paper):
    assert len(on_paper) >= 57
    assert on_paper.index.is_unique
    verdicts = {verdict.partition(" (")[0] for verdict in on_paper.published_verdict}
    assert verdicts == {"holds", "holds where printed", "fails", "no number"}
    assert set(on_paper.our_verdict) == {"not measured"}  # there is no record at all
    assert (on_paper.published_numbers != "").all()
    assert (on_paper.our_numbers != "").all()


def test_claims_name_rows_that_their_tables_have(plan):
    """A mistyped row would never be measured: of a planned artefact every number must be found."""
    claims = read(plan)
    numbers = [number for claim in claims for number in claim.accuracies]
    planned = [number for number in numbers if number.artefact in plan.artefacts]
    assert planned
    measured = Measured(plan, ROOT / "nowhere", ROOT / "nowhere", planned)
    for number in planned:
        with pytest.raises(MissingError, match="not built yet"):
            measured(Comparison(number, 50.0))


def test_printed_numbers_without_a_plan_for_them(small):
    printed = Printed(Papers.read().values, small)
    with pytest.raises(MissingError, match=r"cvpr23_table5 in values\.csv has no"):
        printed(Comparison(Number("cvpr23_table5", "cifar10", "resnet18", "x", ("NAT",)), 50.0))
    number = Number("cvpr23_table4", "cifar10", "resnet18", "trades", ("APGD",))
    assert printed(Comparison(number, 31.0, "below")).one == pytest.approx(30.2)


def test_what_a_scale_leaves_out_is_printed_all_the_same(plan, on_paper):
    """Whole artefacts, or networks and columns of some; rows keep our names (trades0.25: trades)."""
    claims = read(plan)
    less = {"plusplus_table1": {"networks": ["resnet18"], "columns": ["NAT"]}}
    out = {name: "no time" for name in plan.artefacts if name not in less}
    small = Plan(plan.grid, {**plan.scale, "artefacts": less, "left_out": out}, "ci")
    assert set(small.artefacts) == set(less)
    printed = Printed(Papers.read().values, small)
    for claim in claims:
        verdict, row = Verdict(claim.tree, printed), on_paper.loc[claim.id]
        assert verdict.text("not printed") == row.published_numbers
    assert "TRADES" in on_paper.loc["trades_at_89"].published_numbers


# --- files


def test_the_command(plan, tmp_path):
    small = small_plan(plan, test=plan.scale["test"])
    store(small, tmp_path / "results", {name: (0.9, 0.5) for name in METHODS}, n=60)
    shutil.move(reports_of(small, tmp_path / "results"), tmp_path / "reports")
    grid, claims = tmp_path / "grid.yaml", tmp_path / "claims.yaml"
    grid.write_text(yaml.safe_dump(dict(small.grid)))
    claims.write_text(yaml.safe_dump(claimed(BEST)))
    words = ["--scale", "ci", "--grid", str(grid), "--claims", str(claims)]
    done = command("harness", "claims", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "reports" / "ci" / "claims.md").read_text()
    assert "stand-in data" in text
    assert "**undecided**" in text  # equal on every image
    header = (tmp_path / "reports" / "ci" / "claims.csv").read_text().splitlines()[0]
    assert header == (
        "id,claim,source,published_verdict,published_numbers,our_verdict,our_numbers,artefacts,kind"
    )


def test_what_holds_in_part_is_counted_apart(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.95, 0.5), "at": (0.8, 0.5), "fat": (0.8, 0.5)})
    parts = [BEST, {**BEST, "in": [PLACE, f"{ARTEFACT}/cifar10/wrn32_10"]}]
    parts.append({**BEST, "in": [PLACE, f"{ARTEFACT}/cifar100/resnet18"], "than": ["at"]})
    entries = [{**claimed(part)["claims"][0], "id": f"n{n}"} for n, part in enumerate(parts)]
    content = {**claimed(), "claims": entries}
    table = judge(small, parse(content, small), tmp_path, reports_of(small, tmp_path))
    text = markdown(table, "a notice")
    assert "Ours: holds where measured 2, holds 1." in text
    assert "**holds where measured (1 of 2 comparisons)**: NAT, cifar10" in text
    folder = tmp_path / "ci"
    folder.mkdir()
    table.to_csv(folder / "claims.csv", index=False)
    shown = on_page(small, folder)
    assert shown["counts"]["our"] == {"holds": 1, "holds where measured": 2, "fails": 0, "undecided": 0}
    page = environment().get_template("verdicts.html.j2").render(verdicts=shown)
    assert "<b>1</b> holds, <b>2</b> holds where measured, <b>0</b> fails" in page
    assert page.count('class="verdict holds-where-measured"') == 2
    assert "holds where measured (2 of 4 comparisons)</span>" in page
    assert "has no wrn32_10 (2 comparisons)" in page


def test_the_table_counts_verdicts(on_paper):
    text = markdown(on_paper.reset_index(), "a notice")
    assert "Ours: not measured" in text
    assert text.count("\n| ") == len(on_paper) + 2  # two tables, of claims and of controls


def test_controls_are_judged_and_counted_by_themselves(small, tmp_path):
    store(small, tmp_path, {"trades6": (0.9, 0.5), "at": (0.5, 0.5), "fat": (0.5, 0.5)})
    content = claimed(BEST)
    content["controls"] = [{**content["claims"][0], "id": "two", "source": "a control"}]
    found = judge(small, parse(content, small), tmp_path, reports_of(small, tmp_path))
    assert found.kind.tolist() == ["claim", "control"]
    assert found.our_verdict.tolist() == ["holds", "holds"]
    text = markdown(found, "a notice")
    assert "Ours: holds 1.\n\nOurs are compared" in text
    assert "Controls that the papers lack\n\nOurs: holds 1." in text
    folder = tmp_path / "page"
    folder.mkdir()
    found.to_csv(folder / "claims.csv", index=False)
    counts = on_page(small, folder)["counts"]
    assert counts["our"]["holds"] == counts["control"]["holds"] == 1
