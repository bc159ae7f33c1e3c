"""The paper scale holds what the papers print, field by field, and our guesses where they do not."""

from fractions import Fraction
from functools import cache

import pytest
from conftest import command

from harness.attacks.attack import Threat
from harness.attacks.balls import Ball
from harness.attacks.pgd import PGD
from harness.data import count
from harness.grid.plan import Plan
from harness.grid.robustbench import entries
from harness.jobs.bill import kind, known_networks
from harness.papers.claims import read, runs
from harness.papers.published import published
from harness.training.runs import Augment, TrainRun, components, trained_norms

CVPR, PLUSPLUS = "cvpr23_table3", ("plusplus_table2", "plusplus_table4")
EPS = {"linf": Fraction(8, 255), "l2": Fraction(128, 255), "l1": Fraction(12)}
TEST_STEP = {"linf": Fraction(2, 255), "l2": Fraction(15, 255), "l1": Fraction(1)}


@cache
def paper() -> Plan:
    return Plan.read("paper")


def of(artefact: str, dataset: str, network: str | None = None) -> dict[str, TrainRun]:
    """Method -> its run of the first seed."""
    return {
        row.method: paper().run(row.runs[0])
        for row in paper().artefacts[artefact].rows
        if row.dataset == dataset and network in (None, row.network)
    }


def threats(run: TrainRun) -> list[Threat]:
    return [piece for piece in components(run.method) if isinstance(piece, Threat)]


def steps(run: TrainRun) -> set[tuple[str, Fraction, int]]:
    return {(threat.norm, threat.step, threat.steps) for threat in threats(run)}


def optims(run: TrainRun) -> dict[str, float]:
    """Of each learner, or of the method itself: its learning rate."""
    learners = getattr(run.method, "learners", (run.method,))
    return {learner.slug: learner.optim.lr for learner in learners}


# CIFAR-100: CVPR (and Zipper), A.1: 200 epochs; Generalist++, IV-B: 120.


def test_cifar100_is_trained_200_epochs_for_cvpr_and_120_for_generalist_plusplus():
    assert len(of(CVPR, "cifar100")) == 11
    assert {run.recipe.epochs for run in of(CVPR, "cifar100").values()} == {200}
    for artefact in PLUSPLUS:
        for network in ("resnet18", "wrn32_10"):
            found = of(artefact, "cifar100", network)
            assert len(found) == 16
            assert {run.recipe.epochs for run in found.values()} == {120}
            for run in found.values():
                assert {paper().run(parent).recipe.epochs for parent in run.parents} <= {120}


def test_one_method_in_both_papers_is_two_models():
    both = of(CVPR, "cifar100"), of(PLUSPLUS[0], "cifar100", "resnet18")
    shared = both[0].keys() & both[1].keys()
    assert {"at", "trades1", "generalist_d_nt_linf"} <= shared
    for method in shared:
        one, other = (own[method] for own in both)
        assert one.id != other.id
        assert one.method == other.method


def test_no_other_set_has_other_epochs():
    epochs: dict[str, set[int]] = {}
    for artefact in paper().artefacts.values():
        for row in artefact.rows:
            # A baseline's own recipe; and statistics are one pass over the images.
            if not (row.method.endswith("@official") or row.method.startswith("statistics_")):
                found = {paper().run(run).recipe.epochs for run in row.runs}
                epochs.setdefault(row.dataset, set()).update(found)
    assert epochs.pop("cifar100") == {120, 200}
    assert epochs.pop("imagenet") == {240}
    assert set(epochs) == {"cifar10", "mnist", "svhn", "tinyimagenet"}
    assert all(own == {120} for own in epochs.values())


def test_generalist_s_moments_are_shares_of_the_run():
    """A guess for 200 epochs: the papers print them of 120."""
    for artefact, dataset, moments in (
        ("cvpr23_table1a", "cifar10", (75, 5)),
        (CVPR, "cifar100", (125, Fraction(25, 3))),
        ("plusplus_table3", "imagenet", (150, 10)),
    ):
        run = of(artefact, dataset)["generalist_d_nt_linf"]
        epochs = run.recipe.epochs
        assert (run.method.t_prime * epochs, run.method.c * epochs) == moments


def test_every_model_of_cifar100_has_a_file_of_its_own():
    """RobustBench's files go by the names of rows, which two tables share here."""
    found = entries(paper().artefacts)
    epochs = {
        name: {paper().run(entry.run).recipe.epochs for entry in some}
        for name, some in found.items()
        if name.startswith(("cifar100_resnet18_at_Linf", "cifar100_resnet18_at_L2"))
    }
    assert epochs == {
        "cifar100_resnet18_at_Linf": {200},
        "cifar100_resnet18_at_Linf-plusplus_table2": {120},
        "cifar100_resnet18_at_L2-plusplus_table2": {120},
    }
    models = {entry.run for some in found.values() for entry in some}
    for artefact in (CVPR, PLUSPLUS[0]):
        assert models.issuperset(paper().artefacts[artefact].runs)


# Training in l_2: Zipper, A.5: 15/255; Generalist++, IV-B: eps/4.


def test_zipper_trains_in_l_2_with_its_own_step():
    found = of("zipper_table5", "cifar10")
    assert list(found) == ["at_l2", "trades1_l2", "generalist_d_nt_l2"]
    for run in found.values():
        assert {threat.ball for threat in threats(run)} == {Ball("l2", EPS["l2"])}
        assert steps(run) == {("l2", Fraction(15, 255), 10)}


def test_generalist_plusplus_trains_in_l_2_with_a_quarter_of_eps():
    quarter = ("l2", Fraction(32, 255), 10)
    for artefact, dataset in (("plusplus_table1", "cifar10"), ("plusplus_table2", "cifar100")):
        for network in ("resnet18", "wrn32_10"):
            found = of(artefact, dataset, network)
            both = {quarter, ("linf", Fraction(2, 255), 10)}
            for method in ("generalist_t", "generalist_d_linf_l2", "at_avg", "msd", "rmc", "ramp"):
                assert steps(found[method]) == both, method
            _, l2 = found["rmc"].parents
            assert steps(paper().run(l2)) == {quarter}
    assert steps(of("plusplus_fig11b", "cifar10")["at_l2"]) == {quarter}


def test_zipper_s_rows_still_meet_their_published_numbers_and_claims():
    table = paper().artefacts["zipper_table5"]
    printed = published(table, paper())
    assert set(printed.method) == {row.method for row in table.rows}
    assert len(printed) == 33
    (claim,) = [claim for claim in read(paper()) if claim.id == "l2_training"]
    assert set(runs(paper(), [claim])) == set(table.runs)


# Selection: natural plus PGD20 in the norms that a method trains against.


def selected_by(run: TrainRun) -> tuple[str, ...]:
    """The norms; each PGD must be the evaluation's own."""
    assert run.selection.use in ("validation", "paper-test")
    for attack in run.selection.attacks:
        norm = attack.ball.norm
        if run.dataset in ("cifar10", "cifar100"):
            assert attack == PGD(Ball(norm, EPS[norm]), TEST_STEP[norm], 20)
        assert attack == paper().columns.pgd(run.dataset, norm, 20)
    return tuple(attack.ball.norm for attack in run.selection.attacks)


@pytest.mark.parametrize(
    ("artefact", "method", "norms"),
    [
        ("cvpr23_table1a", "nt", ()),
        ("cvpr23_table1a", "at", ("linf",)),
        ("cvpr23_table1a", "at_half", ("linf",)),
        ("cvpr23_table1a", "trades6", ("linf",)),
        ("cvpr23_table1a", "fat", ("linf",)),
        ("cvpr23_table1a", "generalist_d_nt_linf", ("linf",)),
        ("cvpr23_table1a", "generalist_d_nt_linf@released", ("linf",)),
        ("zipper_table5", "at_l2", ("l2",)),
        ("zipper_table5", "trades1_l2", ("l2",)),
        ("zipper_table5", "generalist_d_nt_l2", ("l2",)),
        ("plusplus_table1", "score", ("linf",)),
        ("plusplus_table1", "part", ("linf",)),
        ("plusplus_table1", "at_avg", ("linf", "l2")),
        ("plusplus_table1", "msd", ("linf", "l2")),
        ("plusplus_table1", "rmc", ("linf", "l2")),
        ("plusplus_table1", "ramp", ("linf", "l2")),
        ("plusplus_table1", "generalist_d_linf_l2", ("linf", "l2")),
        ("plusplus_table1", "generalist_t", ("linf", "l2")),
        ("plusplus_table1", "eat", ("linf", "l1")),
    ],
)
def test_an_epoch_is_selected_in_its_method_s_norms(artefact, method, norms):
    assert selected_by(of(artefact, "cifar10")[method]) == norms


def test_every_run_is_selected_by_what_it_was_trained_for():
    for run in paper().runs.values():
        if run.selection.use == "last":  # `at@last`
            assert run.selection.attack is None
            continue
        assert selected_by(run) == tuple(trained_norms(run.method))
        alone = len(run.selection.attacks) == 1
        assert isinstance(run.selection.attack, PGD) == alone  # else its id would change


# ImageNet: Generalist++, IV-C.


@pytest.mark.parametrize("network", ["resnet50", "wrn50_2"])
def test_imagenet(network):
    found = of("plusplus_table3", "imagenet", network)
    assert list(found) == [
        "fast_at",
        "at",
        "generalist_d_nt_linf",
        "generalist_d_linf_l2",
        "generalist_t",
    ]
    for run in found.values():
        assert run.recipe.epochs == 240
        assert run.recipe.augment == Augment(pad=0, flip=True, random_resized_crop=224)
        for threat in threats(run):
            eps = {"linf": Fraction(4, 255), "l2": Fraction(64, 255)}[threat.norm]
            assert (threat.ball.eps, threat.step, threat.steps) == (eps, eps / 4, 3)
    rate = {"resnet50": 0.01, "wrn50_2": 0.1}[network]  # a guess, by analogy with CIFAR's networks
    assert optims(found["at"]) == {"at": rate}
    assert optims(found["generalist_t"]) == {"at": rate, "nt": 0.1, "at_l2": rate}
    at, nt, l2 = found["generalist_t"].method.learners
    assert [own.optim.weight_decay for own in (at, nt, l2)] == [1e-4, 2e-4, 1e-4]


def test_cifar_keeps_its_rates_and_its_augmentation():
    for network, rate in (("resnet18", 0.01), ("wrn32_10", 0.1)):
        run = of("plusplus_table1", "cifar10", network)["generalist_t"]
        assert optims(run) == {"at": rate, "nt": 0.1, "at_l2": rate}
        assert run.recipe.augment == Augment(pad=4, flip=True)


def test_stand_ins_of_imagenet_are_not_cropped():
    smoke = Plan.read("smoke")
    for run in smoke.runs.values():
        assert run.recipe.augment.random_resized_crop is None


# Seeds and test images.


def test_cvpr_s_tables_2_and_4_have_five_seeds():
    for artefact in ("cvpr23_table2", "cvpr23_table4"):
        for row in paper().artefacts[artefact].rows:
            assert [paper().run(run).seed for run in row.runs] == [0, 1, 2, 3, 4]
    smoke = Plan.read("smoke").artefacts["cvpr23_table4"]
    assert {len(row.runs) for row in smoke.rows} == {2}  # all that it has


def test_every_model_is_tested_on_its_whole_test_set():
    images = {"svhn": 26_032, "imagenet": 5_000}
    seen = set()
    for run, evaluation in paper().evaluations.items():
        dataset = paper().run(run).dataset
        for probe in evaluation.probes:
            if "/" not in probe.dataset:
                assert probe.dataset == dataset
                assert probe.examples == images.get(dataset, 10_000) == count(dataset, "test")
                seen.add(dataset)
    assert seen == {"cifar10", "cifar100", "imagenet", "mnist", "svhn", "tinyimagenet"}


def test_large_networks_are_attacked_in_batches_that_fit():
    """With what an attack keeps for them: 500 images need 12 GB in WRN-32-10, 56 in WRN-50-2."""
    plan, sizes = paper(), {}
    for run, evaluation in plan.evaluations.items():
        own = plan.run(run)
        for probe in evaluation.probes:
            if probe.attack is not None:
                sizes.setdefault(own.network, set()).add(probe.batch_size)
                assert probe.batch_size * known_networks()[kind(own)].kept_bytes < 13e9
    assert sizes == {"resnet18": {500}, "wrn32_10": {500}, "resnet50": {100}, "wrn50_2": {100}}
    table = plan.artefacts["plusplus_table3"]
    for cell in table.cells:  # a model's checks find the records that it has
        found = {p for c in table.attacks[cell.dataset, cell.network] for p in c.probes}
        assert found.issuperset(cell.meaning.probes)


def test_the_list_of_runs_tells_epochs_and_images(tmp_path):
    done = command("harness", "plan", "--scale", "paper", "--runs", cwd=tmp_path, check=True)
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    for run in of(CVPR, "cifar100").values():
        assert "  200 epochs" in lines[run.id]
    for run in of(PLUSPLUS[0], "cifar100", "resnet18").values():
        assert "  120 epochs" in lines[run.id]
    for run in of("cvpr23_table2", "svhn").values():
        assert lines[run.id].endswith("26032 test images")
