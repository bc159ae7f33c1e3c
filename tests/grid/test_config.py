"""Bad input: one sentence with what was expected, what was found and the remedy."""

import copy
from dataclasses import make_dataclass, replace

import pytest
import yaml
from conftest import ROOT, command

from harness.core.config import merged, read_grid, read_scale
from harness.core.errors import UserError
from harness.grid.build import fraction
from harness.grid.columns import EvalRun
from harness.grid.plan import Plan
from harness.grid.specs import read_spec, write_spec

GRID, SCALE = read_grid(), read_scale("ci")


def set_at(tree, path, value):
    *parents, last = path.split("/")
    for part in parents:
        tree = tree[part]
    tree[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("artefacts/cvpr23_table1a/methods", ["att"], "known method .* found 'att'; did you mean 'at"),
        ("artefacts/cvpr23_table1a/networks", ["resnet81"], "did you mean 'resnet18'"),
        ("artefacts/cvpr23_table1a/datasets", ["cifar11"], "did you mean 'cifar10'"),
        ("artefacts/cvpr23_table1a/columns", ["PGD21"], "known column .* did you mean 'PGD20'"),
        ("artefacts/cvpr23_table1a/kind", "tabel", "at artefacts.cvpr23_table1a.kind"),
        ("methods/trades6/method", "tradse", "did you mean 'trades'"),
        ("methods/trades6/betta", 6, "did you mean 'beta'"),
        ("methods/trades6/beta", "six", "expected a number at methods.trades6.beta, found 'six'"),
        ("methods/trades6/threat", "l3", "known threat"),
        ("methods/trades6", {"method": "trades", "threat": "linf"}, "a value for beta"),
        ("methods/generalist_t/gamma", [1, 1, 2, 0], r"gamma within \[0, 1\]"),
        ("methods/generalist_t/gamma", [1, 0], "4 values of gamma"),
        ("methods/generalist_t/c", 0, "c above 0"),
        ("methods/generalist_t/learners", ["at", "generalist_t"], "one-objective method"),
        ("methods/generalist_t/preset", "releasd", "did you mean 'released'"),
        ("datasets/digits/threats/linf/eps", 8, "found eps = 8; write 8/255"),
        ("datasets/digits/threats/linf/eps", "8/0", "a number or fraction"),
        ("datasets/digits/threats/linf/norm", "l7", r"threats\.linf\.norm"),
        ("networks/tiny/robust/lr", "fast", "expected a number"),
        ("artefacts/cvpr23_table3/recipe", {"epoch": 200}, "a recipe with epochs, batch_size"),
        ("artefacts/zipper_table5/threats", {"l2": "l2_ziper"}, "did you mean 'l2_zipper'"),
        ("artefacts/zipper_table5/threats", {"l_2": "l2_zipper"}, "did you mean 'l2"),
        ("datasets/imagenet/augment/random_resized_crop", 0, "the side of what a random resized crop"),
    ],
)
def test_a_mistake_in_the_grid(path, value, message, tmp_path):
    grid = copy.deepcopy(GRID)
    set_at(grid, path, value)
    file = tmp_path / "grid.yaml"
    file.write_text(yaml.safe_dump(grid))
    with pytest.raises(UserError, match=message):
        Plan.read("ci", file)


def test_learners_can_be_customised():
    grid = copy.deepcopy(GRID)
    grid["methods"]["generalist_t"]["learners"] = [
        "at",
        {"learner": "nt", "optim": {"algorithm": "adam", "lr": 0.0001}, "average": {"decay": 0.99}},
        {"learner": "at_l2", "optim": {"lr": 0.5}},
    ]
    method = Plan(grid, SCALE, "ci").train_run("generalist_t", "cifar10", "resnet18", 0).method
    natural, robust = method.learners[1], method.learners[2]
    assert (natural.optim.algorithm, natural.optim.lr) == ("adam", 0.0001)
    assert natural.average.decay == 0.99
    assert natural.optim.weight_decay == GRID["networks"]["tiny"]["natural"]["weight_decay"]
    assert robust.optim.lr == 0.5


def test_python_tags_in_yaml_are_not_run(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text("!!python/object/apply:os.system ['touch pwned']")
    with pytest.raises(UserError, match="expected plain YAML"):
        read_grid(file)


def test_a_grid_of_one_s_own_lies_over_ours(tmp_path):
    file = tmp_path / "grid.yaml"
    own = {
        "methods": {"mine": {"method": "at", "threat": "l2"}},
        "artefacts": {"cvpr23_table1a": {"methods": ["mine"]}},
        "presets": {"short": {"label": "short", "recipes": {"at": {"epochs": 2}}}},
    }
    file.write_text(yaml.safe_dump({"extends": "config/grid.yaml", **own}))
    grid = read_grid(file)
    assert grid["methods"] == {**GRID["methods"], **own["methods"]}
    assert grid["presets"] == {**GRID["presets"], **own["presets"]}
    table = GRID["artefacts"]["cvpr23_table1a"]
    assert grid["artefacts"]["cvpr23_table1a"] == {**table, "methods": ["mine"]}
    assert grid["registry"] == GRID["registry"]
    rows = Plan.read("lite", file).artefacts["cvpr23_table1a"].rows
    assert [row.method for row in rows] == ["mine"], "the rows that lite has run do not limit it"
    file.write_text(yaml.safe_dump({"extends": "another.yaml", **own}))
    with pytest.raises(UserError, match=r"expected extends: config/grid\.yaml, .* at extends of grid"):
        read_grid(file)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("my_methods:METHODS", r"the registry my_methods:METHODS, .* my_methods.py into PYTHONPATH"),
        ("generalist:METHOD", "known name in generalist, found 'METHOD'; did you mean 'METHODS'"),
    ],
)
def test_a_registry_that_is_not_there(address, message):
    with pytest.raises(UserError, match=message):
        Plan({**GRID, "registry": address}, SCALE, "ci")


def test_a_spec_holds_classes_of_any_module(plan):
    for run in plan.runs:
        assert read_spec(plan.training_spec(run)) == plan.run(run)
    for run, evaluation in plan.evaluations.items():
        assert read_spec(plan.evaluation_spec(run)) == evaluation


def test_two_classes_of_one_name_are_not_one(plan):
    """A spec knows a class by its name, as a run's id does."""
    mine = make_dataclass("PGD", [("steps", int, 1)], frozen=True)
    probe = plan.columns.probe("PGD20", "digits")
    both = EvalRun("run", (probe, replace(probe, attack=mine())))
    with pytest.raises(UserError, match=r"expected one class PGD .* rename one of them"):
        write_spec(both)


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(UserError, match="found none"):
        read_grid(tmp_path / "nothing.yaml")
    with pytest.raises(UserError, match="did you mean 'smoke'"):
        read_scale("smok")


def test_an_unknown_artefact_and_scale_on_the_command_line(tmp_path):
    for words, hint in (
        (["--artefact", "cvpr23_table1aa"], "did you mean 'cvpr23_table1a'"),
        (["--artefact", "cvpr23_table1a", "--scale", "litte"], "did you mean 'lite'"),
    ):
        found = command("harness", "tables", *words, cwd=tmp_path)
        assert found.returncode == 2
        assert hint in found.stderr
        assert found.stderr.count("\n") == 1


def test_merging():
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}) == {"a": {"b": 3, "c": 2}, "d": 4}
    assert str(fraction("8/255", "eps")) == "8/255"


def test_every_scale_plans():
    for file in (ROOT / "config" / "scales").glob("*.yaml"):
        plan = Plan.read(file.stem)
        assert set(plan.artefacts) == set(GRID["artefacts"]) - set(plan.scale.get("left_out", {}))
        parents = {parent for run in plan.runs.values() for parent in run.parents}
        drawn = {run for artefact in plan.artefacts.values() for run in artefact.runs}
        assert plan.runs.keys() == drawn | parents
        assert plan.evaluations.keys() <= drawn


def test_every_method_has_a_label():
    assert set(GRID["labels"]) == set(GRID["methods"])


def test_each_data_set_of_a_table_may_have_its_own_number_of_seeds():
    scale = {**read_scale("lite"), "seeds": [7, 8, 9]}
    own = {"artefacts": {"cvpr23_table2": {"seeds": {"mnist": 3}}}}
    rows = Plan(GRID, {**scale, **own}, "lite").artefacts["cvpr23_table2"].rows
    assert {(row.dataset, len(row.runs)) for row in rows} == {("mnist", 3), ("svhn", 1)}
    own["artefacts"]["cvpr23_table2"]["seeds"] = {"mnits": 3}
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        Plan(GRID, {**scale, **own}, "lite")


def test_each_data_set_of_a_scale_may_have_its_own_number_of_test_images():
    test = {**SCALE["test"], "examples_of": {"digits20": 7}}
    columns = Plan(GRID, {**SCALE, "test": test}, "ci").columns
    assert columns.probe("PGD20", "digits").examples == SCALE["test"]["examples"]
    assert columns.probe("PGD20", "digits20").examples == 7
    probes = columns.resolved("C5", "digits20", "as_named").probes
    assert {probe.examples for probe in probes} == {7}
    test["examples_of"] = {"digits21": 7}
    with pytest.raises(UserError, match="did you mean 'digits20'"):
        Plan(GRID, {**SCALE, "test": test}, "ci")


def test_a_method_in_two_artefacts_is_two_runs_where_these_train_in_two_ways():
    """An artefact's recipe lies over the data set's and under the preset's and the scale's."""
    grid, scale = copy.deepcopy(GRID), {**SCALE, "recipe": {"batch_size": 64}}
    grid["datasets"]["digits20"]["recipe"] = {"epochs": 7}
    grid["artefacts"]["cvpr23_table3"]["methods"] = ["at", "rmc", "at@official"]
    plan = Plan(grid, scale, "ci")

    def epochs(artefact: str, method: str) -> int:
        rows = plan.artefacts[artefact].rows
        (run,) = {row.runs[0] for row in rows if (row.method, row.dataset) == (method, "cifar100")}
        found = plan.run(run).recipe.epochs
        assert {plan.run(parent).recipe.epochs for parent in plan.run(run).parents} <= {found}
        return found

    assert epochs("plusplus_table2", "at") == epochs("plusplus_table2", "rmc") == 7
    assert epochs("cvpr23_table3", "at") == epochs("cvpr23_table3", "rmc") == 200
    grid["presets"]["official"]["recipes"]["at"]["epochs"] = 55
    plan = Plan(grid, scale, "ci")
    assert epochs("cvpr23_table3", "at@official") == 55
    plan = Plan(grid, SCALE, "ci")  # its recipe says epochs
    assert epochs("cvpr23_table3", "at") == SCALE["recipe"]["epochs"]


def test_rows_limit_every_artefact():
    scale = {**read_scale("ci"), "rows": ["nt", "at", "generalist_d_nt_linf"]}
    plan = Plan(GRID, scale, "ci")
    assert [row.method for row in plan.artefacts["cvpr23_table1a"].rows] == scale["rows"]
    assert plan.artefacts["plusplus_fig8a"].show["right"] == ["generalist_d_nt_linf"]
    assert plan.rows_of("cvpr23_table1a") == Plan.read("ci").rows_of("cvpr23_table1a")
    with pytest.raises(UserError, match="did you mean 'trades"):
        Plan(GRID, {**scale, "rows": ["tradse6"]}, "ci")
