"""Each baseline's own recipe: its numbers in the plan, and the table of unified against official."""

import copy
import dataclasses
from fractions import Fraction

import pytest
import torch
from conftest import L2, LINF, ROOT, generator, run_of
from test_tables import made_up, shown

import baselines.msd
from baselines.msd import MSD, MultiSteepest
from baselines.rmc import RMC
from harness.attacks.attack import Threat, perturb
from harness.attacks.balls import Ball, steepest
from harness.core.config import read_grid, read_scale
from harness.core.errors import UserError
from harness.data import load
from harness.grid.plan import Plan
from harness.models.networks import new_model
from harness.papers.published import printed, published
from harness.reports.page.artefacts import _table as page_table
from harness.reports.tables import latex, markdown
from harness.training.contracts import Batch, Clock
from harness.training.learner import Optim

TABLE = "extra_official"
L1 = Threat(Ball("l1", Fraction(12)), Fraction(1), 3)


@pytest.fixture(scope="module")
def paper() -> Plan:
    return Plan.read("paper")


def official(paper, slug, network="resnet18", dataset="cifar10"):
    return paper.train_run(f"{slug}@official", dataset, network, seed=0)


def rates(run) -> list[float]:
    """The learning rate at the start of every epoch."""
    epochs = run.recipe.epochs
    return [run.method.optim.lr_at(Clock(epoch, 0, epochs, 390)) for epoch in range(epochs)]


def radii(threats) -> dict[str, tuple[Fraction, Fraction, int]]:
    return {threat.norm: (threat.ball.eps, threat.step, threat.steps) for threat in threats}


# The numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "epochs", "changes"),  # epochs counted from 0, and the rate from there on
    [
        ("trades1", 76, {0: 0.1, 74: 0.01}),
        ("trades6", 76, {0: 0.1, 74: 0.01}),
        ("fat", 120, {0: 0.1, 59: 0.01, 89: 0.001, 109: 0.0005}),
        ("part", 80, {0: 0.01, 79: 0.001}),
    ],
)
def test_where_the_rate_drops(paper, slug, epochs, changes):
    found = rates(official(paper, slug))
    assert len(found) == epochs
    steps = [0, *(e for e in range(1, epochs) if found[e] != found[e - 1])]
    assert {epoch: pytest.approx(found[epoch]) for epoch in steps} == changes


def test_fast_at_climbs_for_an_epoch_and_falls_in_three_parts(paper):
    run = official(paper, "fast_at")
    assert run.recipe.epochs == 15
    ends = [run.method.optim.lr * value for _, value in run.method.optim.schedule.knots]
    times = [15 * time for time, _ in run.method.optim.schedule.knots]
    assert times == [0, 1, 6, 12, 15]
    assert ends == pytest.approx([0, 0.4, 0.04, 0.004, 0.0004])
    half = run.method.optim.lr_at(Clock(0, 5, 15, 10))  # linear in between
    assert half == pytest.approx(0.2)
    assert run.method.optim.lr_at(Clock(9, 0, 15, 10)) == pytest.approx(0.022)


def test_msd(paper):
    msd = official(paper, "msd").method.objective
    assert radii(msd.threats) == {
        "linf": (Fraction("0.03"), Fraction("0.003"), 50),
        "l2": (Fraction("0.3"), Fraction("0.05"), 50),
        "l1": (Fraction(12), Fraction(1), 50),
    }
    assert msd.l1_coordinates == (5, 20)
    assert msd.mode == "train"
    unified = run_of(paper, "msd").method.objective
    assert unified.l1_coordinates is None
    assert [threat.norm for threat in unified.threats] == ["linf", "l2"]


@pytest.mark.parametrize(("network", "decay"), [("resnet18", 3e-4), ("wrn32_10", 5e-4)])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_rmc(paper, network, decay, dataset):
    run = official(paper, "rmc", network, dataset)
    assert (run.method.optim.lr, run.method.optim.weight_decay) == (0.03, decay)
    assert radii(run.method.threats) == {
        "linf": (Fraction(2, 255), Fraction(2, 255), 10),
        "l2": (Fraction(1), Fraction("0.2"), 10),
        "l1": (Fraction(12), Fraction(1), 10),
    }
    assert run.method.l1_coordinates == (5, 20)
    factor = run.method.optim.schedule.factor
    found = [factor(share) for share in (0, 0.25, 0.5, 0.7, 0.9, 0.95, 0.999)]
    assert found == pytest.approx([1, 1, 1, 0.505, 0.01, 0.01, 0.01])
    parents = [paper.train_run(slug, dataset, network, 0).id for slug in ("at", "at_l2")]
    assert list(run.parents) == parents  # of the unified recipe


def test_every_threat_has_its_stand_in():
    sets = read_grid()["datasets"]
    known = [sets[name]["threats"].keys() for name in ("cifar10", "svhn", "mnist")]
    assert sets["digits"]["threats"].keys() == set().union(*known)


@pytest.mark.parametrize(("scale", "side"), [("ci", 8), ("smoke", 8), ("paper", 32)])
def test_cutout_takes_half_a_side(scale, side):
    """16 pixels, as for CIFAR, blacken the whole of a digit."""
    run = Plan.read(scale).train_run("agr@official", "cifar10", "resnet18", seed=0)
    assert 2 * run.recipe.augment.cutout == side
    if scale != "paper":
        assert load(run.dataset, "train").take(slice(1)).x.shape[-1] == side


# MSD's l_1 step -------------------------------------------------------------------------------


@pytest.fixture
def grey() -> Batch:
    """Images so far from the box that it stops no step."""
    noise = 0.05 * torch.randn(6, 1, 8, 8, generator=generator(1))
    return Batch(0.5 + noise, torch.arange(6), torch.arange(6))


def moved(batch, seed) -> torch.Tensor:
    network = new_model("tiny", channels=1, num_classes=10, seed=0)
    attack = MultiSteepest((dataclasses.replace(L1, steps=1),), (5, 20))
    found = perturb(attack, network, batch.x, batch.y, generator=generator(seed))
    return (found - batch.x).flatten(1)


def test_an_l1_step_has_length_1_over_5_to_20_coordinates(grey):
    drawn = set()
    for seed in range(60):
        delta = moved(grey, seed)
        counts = (delta.abs() > 1e-6).sum(dim=1)
        (count,) = set(counts.tolist())  # one number for the batch
        drawn.add(count)
        torch.testing.assert_close(delta.abs().sum(dim=1), torch.ones(6), atol=1e-4, rtol=0)
        largest = delta.abs().amax(dim=1)
        torch.testing.assert_close(largest, torch.full((6,), 1 / count), atol=1e-4, rtol=0)
    assert min(drawn) == 5
    assert max(drawn) == 20
    assert len(drawn) > 10


def test_an_l1_step_moves_where_the_gradient_is_largest(grey):
    network = new_model("tiny", channels=1, num_classes=10, seed=0).eval()
    x = grey.x.clone().requires_grad_(True)
    torch.nn.functional.cross_entropy(network(x), grey.y, reduction="sum").backward()
    delta = moved(grey, 0)
    count = int((delta[0].abs() > 1e-6).sum())
    for image, gradient in zip(delta, x.grad.flatten(1), strict=True):
        places = set(gradient.abs().topk(count).indices.tolist())
        assert set(image.abs().topk(count).indices.tolist()) == places
        assert (image.sign() * gradient.sign() >= 0).all()


def test_an_l1_step_is_its_seeds(grey):
    assert torch.equal(moved(grey, 3), moved(grey, 3))
    assert any(not torch.equal(moved(grey, 3), moved(grey, seed)) for seed in (4, 5, 6))


@pytest.fixture
def shares(monkeypatch) -> list[float]:
    """What share of the coordinates each l_1 step moves."""
    shares = []

    def watched(norm, gradient, keep=0.0):
        if norm == "l1":
            shares.append(keep)
        return steepest(norm, gradient, keep)

    monkeypatch.setattr(baselines.msd, "steepest", watched)
    return shares


def test_every_step_draws_anew_and_one_percent_is_the_default(grey, shares):
    network, clock = new_model("tiny", channels=1, num_classes=10, seed=0), Clock(0, 0, 4, 3)
    threats = tuple(dataclasses.replace(threat, steps=12) for threat in (LINF, L2, L1))
    MSD(threats, "train", (5, 20))(network, grey, clock, generator())
    counts = [share * 64 for share in shares]
    assert len(counts) == 12
    assert all(count == round(count) and 5 <= count <= 20 for count in counts)
    assert len(set(counts)) > 3
    shares.clear()
    MSD(threats)(network, grey, clock, generator())
    assert shares == [0.01] * 12


def test_the_draw_leaves_a_run_without_l1_coordinates_alone(grey):
    network, draws = new_model("tiny", channels=1, num_classes=10, seed=0), generator()
    before = draws.get_state()
    MSD((LINF, L2))(network, grey, Clock(0, 0, 4, 3), draws)
    assert torch.equal(draws.get_state(), before)


def test_rmc_crafts_and_judges_with_it(lab, grey, shares):
    ends = tuple(new_model("tiny", channels=1, num_classes=10, seed=seed) for seed in (1, 2))
    rmc = RMC((LINF, L2, L1), Optim(lr=0.03, weight_decay=3e-4), (5, 20))
    training = rmc.start(dataclasses.replace(lab, parents=ends, validation=grey))
    training.step(grey, Clock(0, 0, 4, 3))
    assert len(shares) == LINF.steps
    training._worst_norm(0.5)
    assert len(shares) == LINF.steps + L1.steps
    assert all(5 <= share * 64 <= 20 for share in shares)


@pytest.mark.parametrize("coordinates", [(0, 20), (20, 5)])
@pytest.mark.parametrize("slug", ["msd", "rmc"])
def test_impossible_numbers_of_coordinates_are_refused(slug, coordinates):
    grid = copy.deepcopy(read_grid())
    grid["methods"][slug]["l1_coordinates"] = list(coordinates)
    with pytest.raises(UserError, match=rf"{slug}: expected l1_coordinates .* write l1_coord"):
        Plan(grid, read_scale("ci"), "ci")


# The table ------------------------------------------------------------------------------------


def test_every_baseline_that_has_an_official_recipe_stands_beside_it(paper):
    grid = read_grid()
    wanted = []
    for slug in grid["artefacts"]["plusplus_table1"]["methods"]:
        if slug.startswith("generalist"):
            continue
        known = grid["methods"][slug]["method"] in grid["presets"]["official"]
        wanted += [slug, f"{slug}@official"] if known else [slug]
    artefact = paper.artefact(TABLE)
    for dataset in ("cifar10", "cifar100"):
        for network in ("resnet18", "wrn32_10"):
            rows = [r for r in artefact.rows if (r.dataset, r.network) == (dataset, network)]
            assert [row.method for row in rows] == wanted
    assert len(set(artefact.runs)) == len(artefact.rows)  # no two rows are the same training
    assert wanted.count("at_half") == 1
    assert "at_half@official" not in wanted


def test_both_recipes_have_the_printed_row_of_their_data_set(paper):
    table = published(paper.artefact(TABLE), paper).set_index(
        ["dataset", "network", "method", "column"]
    )
    assert not table.index.duplicated().any()
    for number, dataset in ((1, "cifar10"), (2, "cifar100")):
        theirs = printed(f"plusplus_table{number}", {}, ["NAT", "mean_AA"], paper)
        assert set(theirs.dataset) == {dataset}
        for row in theirs.itertuples():
            if row.method.startswith("generalist"):
                continue
            for ours in (row.method, f"{row.method}@official"):
                if ours == "at_half@official":
                    continue
                found = table.published[row.dataset, row.network, ours, row.column]
                assert found == row.published
    unprinted = {row.method for row in paper.artefact(TABLE).rows} - set(
        table.index.get_level_values("method")
    )
    assert unprinted == {"ramp", "ramp@official"}  # the text names it, the tables do not have it


def test_the_first_table_that_has_a_number_counts(paper):
    one = printed("cvpr23_table1a", {}, ["NAT"], paper).set_index("method").published
    both = printed(["cvpr23_table1a", "cvpr23_table1b"], {}, ["NAT"], paper)
    assert len(both) > len(one)  # the other one has another network
    twice = printed(["cvpr23_table1a", "zipper_table8", "cvpr23_table1a"], {}, ["NAT"], paper)
    assert twice.set_index("method").published.equals(one)


def test_a_renamed_row_has_no_other_printed_row(paper):
    found = printed("cvpr23_table1a", {"fat": "at", "at@official": "at"}, ["NAT"], paper)
    found = found.set_index("method").published
    assert found["fat"] == found["at@official"] == found["at"] == 84.32


def test_the_text_shows_the_published_number_twice(plan):
    artefact = plan.artefact(TABLE)
    table = shown(artefact, made_up(plan, artefact), plan)
    lines = markdown(table, artefact, "a notice").splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        "## cifar10 with resnet18, measured with tiny on digits"
    ]
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    expected = printed("plusplus_table1", {}, ["NAT"], plan).set_index(["network", "method"])
    number = f"({expected.published['resnet18', 'trades1']:.2f})"
    for label in ("TRADES (lambda = 1)", "TRADES (lambda = 1), official recipe"):
        assert number in rows[label]
    assert len(rows) == 1 + 25


def test_the_page_shows_it_too(plan, tmp_path):
    artefact = plan.artefact(TABLE)
    (tmp_path / "tables").mkdir()
    table = shown(artefact, made_up(plan, artefact), plan)
    table.to_csv(tmp_path / "tables" / f"{TABLE}.csv", index=False)
    for suffix, form in ((".md", markdown), (".tex", latex)):
        (tmp_path / "tables" / f"{TABLE}{suffix}").write_text(form(table, artefact, "a notice"))
    (part,) = page_table(plan, artefact, tmp_path)["parts"]
    rows = {row["label"]: row["cells"] for row in part["rows"]}
    assert len(rows) == 25
    assert rows["MSD"]["AA_2"]["published"] == rows["MSD, official recipe"]["AA_2"]["published"]
    assert rows["RAMP, official recipe"]["AA_2"]["published"] is None
    assert rows["MSD"]["true_union"]["published"] is None  # the papers print no union


def test_scales_change_only_artefacts_that_there_are():
    known = read_grid()["artefacts"].keys()
    for file in (ROOT / "config" / "scales").glob("*.yaml"):
        scale = read_scale(file.stem)
        assert scale.get("artefacts", {}).keys() <= known
        assert scale.get("left_out", {}).keys() <= known


def test_a_grid_may_lack_an_artefact_that_a_scale_changes():
    grid = read_grid()
    grid["artefacts"] = {"cvpr23_table1a": grid["artefacts"]["cvpr23_table1a"]}
    assert list(Plan(grid, read_scale("smoke"), "smoke").artefacts) == ["cvpr23_table1a"]
