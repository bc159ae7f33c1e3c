"""Bad input: one sentence with what was expected, what was found and the remedy."""

import copy
import json
import math
import re
from dataclasses import make_dataclass, replace
from fractions import Fraction

import pytest
import yaml
from conftest import ROOT, command, said

from harness.attacks.balls import Ball
from harness.core.config import fitting, merged, parse_yaml, read_grid, read_scale
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


def planned(grid, folder):
    """As of a file; JSON is YAML, and quickly read."""
    (folder / "grid.yaml").write_text(json.dumps(grid))
    return Plan.read("ci", folder / "grid.yaml")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("artefacts/cvpr23_table1a/methods", ["att"], "known method .* found 'att'; did you mean 'at"),
        ("artefacts/cvpr23_table1a/networks", ["resnet81"], "did you mean 'resnet18'"),
        ("artefacts/cvpr23_table1a/datasets", ["cifar11"], "did you mean 'cifar10'"),
        ("artefacts/cvpr23_table1a/columns", ["PGD21"], "known column .* did you mean 'PGD20'"),
        (
            "artefacts/cvpr23_table1a/kind",
            "tabel",
            "artefacts.cvpr23_table1a.kind.*did you mean 'table'",
        ),
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
    with pytest.raises(UserError, match=message):
        planned(grid, tmp_path)


TABLE, SWEEP, POINTS = "artefacts/cvpr23_table1a", "artefacts/cvpr23_fig3", "artefacts/cvpr23_fig4b"
VARIED = {"of": "generalist_t", "over": ["trend"]}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        # unknown names
        (
            "datasets/digits/threats/linf/epss",
            "8/255",
            "known field in .*threat linf.*did you mean 'eps'",
        ),
        ("datasets/digits/threats/linf/released/epss", "8/255", "did you mean 'eps'"),
        ("networks/tiny/robust/relesed", {}, "known field in networks.tiny.* 'relesed'"),
        ("networks/tiny/robust/released", {"lrr": 1}, "did you mean 'lr'"),
        (
            "presets/official/trade",
            {"beta": 3},
            "method class in presets.official.*did you mean 'trades'",
        ),
        ("presets/official/fast_at/strid", "5/4", "did you mean 'stride'"),  # no artefact uses it
        ("presets/official/recipes/trade", {"epochs": 3}, "did you mean 'trades'"),
        ("presets/last/selecton", {"use": "last"}, "did you mean 'selection'"),
        ("roles", {"ours": "generalists", "undefended": "nt"}, "in roles.ours, found 'generalists'"),
        ("roles", {"ours": "generalist", "undefended": "nt1"}, "in roles.undefended, found 'nt1'"),
        ("labels/trades7", "TRADES", "known method in .*labels, found 'trades7'"),
        ("methods/at_max/treats", ["linf"], "did you mean 'threats'"),  # no artefact has that row
        ("methods/eat_finetuned/parents", ["att"], "known method .* found 'att'"),
        ("datasets/digits60", GRID["datasets"]["digits"], "known data set in harness/data/sets.py"),
        ("networks/resnet19", GRID["networks"]["tiny"], "known network in harness/models/__init__.py"),
        ("registry", "generalist:METHOD", "known name in generalist, .*did you mean 'METHODS'"),
        ("registry", "generalists:METHODS", "registry generalists:METHODS, found none; put the folder"),
        ("registry", "generalist:Generalist", "a mapping as the registry"),
        # whole numbers, finite numbers, no others
        ("recipe/epochs", 3.0, "type integer at recipe.epochs of grid.yaml, found 3.0"),
        ("recipe/epochs", True, "type integer at recipe.epochs"),
        ("methods/generalist_t/c", "1e999999999", "a number or fraction at methods.generalist_t.c"),
        ("methods/trades6/beta", 10**400, "a number at methods.trades6.beta"),
        ("datasets/digits/threats/linf/steps", 4.0, "at datasets.digits.*threats.linf.steps"),
        # types
        ("methods/at/threat", ["linf"], r"known threat in methods.at.threat, found \['linf'\]"),
        ("methods/at/threat", {"linf": 1}, "known threat"),
        ("methods/at/optim", 3, "fields at methods.at.optim, found 3"),
        ("methods/generalist_t/average", 3, "fields at methods.generalist_t.average, found 3"),
        (
            "methods/generalist_t/learners",
            ["at", 3, "at_l2"],
            r"fields at methods.generalist_t.learners\[1\]",
        ),
        ("methods/generalist_t/learners", ["at", {"optim": "natural"}], "a learner's name at"),
        ("methods/at/method", ["at"], "known method class in methods.at"),
        ("methods/rmc/parents", "at", "a list at methods.rmc.parents"),
        ("methods/at_l2/parents", ["at"], "methods.at_l2: expected 0 parents of at_l2, found 1"),
        # cycles
        ("methods/rmc/parents", ["rmc", "at"], "does not start from itself, found rmc from rmc"),
        ("columns/true_union/all", ["AA_inf", "true_union"], "found true_union of true_union"),
        ("columns/mean_AA/mean", ["minutes", "AA_2"], "columns .* for mean_AA, found minutes"),
        ("columns/true_union/all", ["mean_AA", "AA_2"], "columns .* for true_union, found mean_AA"),
        # sizes
        ("datasets/digits/threats/linf/eps", -0.1, "at datasets.digits.*eps of grid.yaml, found -0.1"),
        ("datasets/digits/threats/linf/test_step", 8, "found step = 8; write 8/255"),
        ("networks/tiny/robust/weight_decay", -1, "weight_decay of 0 or more, found weight_decay = -1"),
        ("methods/iat/alpha", -1, "methods.iat: expected alpha of 0.001 or more"),
        ("methods/msd/mode", "trian", "did you mean 'train'"),
        ("datasets/cifar10/classes", ["cat", "dog"], "10 names at datasets.cifar10.classes, found 2"),
        # names of artefacts
        (
            "artefacts/figure",
            GRID["artefacts"]["cvpr23_fig1"],
            "no rule of the workflow has.*found figure",
        ),
        ("artefacts/my.table", GRID["artefacts"]["cvpr23_table1a"], "lower-case letters, digits and _"),
        # what each kind of artefact needs
        (f"{TABLE}/columns", None, "names, each once at artefacts.cvpr23_table1a.columns"),
        (
            "artefacts/cvpr23_fig1/columns",
            ["NAT"],
            "2 or more columns|2 columns for artefacts.cvpr23_fig1",
        ),
        ("artefacts/cvpr23_fig1/networks", ["resnet18", "wrn32_10"], "one data set and one network"),
        (f"{SWEEP}/vary", [VARIED], "over two axes, without methods for artefacts.cvpr23_fig3"),
        (f"{SWEEP}/methods", ["at"], "over two axes, without methods"),
        (
            f"{POINTS}/vary",
            [VARIED, VARIED],
            "non-unique|uniqueItems True at artefacts.cvpr23_fig4b.vary",
        ),
        ("artefacts/cvpr23_fig5a/columns", ["minutes"], "columns that it can show .*found minutes"),
        ("artefacts/extra_radii/columns", ["NAT", "true_union"], "can show .*found true_union"),
        ("artefacts/cvpr23_fig5b/columns", ["mean_AA"], "can show .*found mean_AA"),
        (
            "artefacts/cvpr23_fig5b/show",
            {"of": "loss"},
            "show with right or wrong for artefacts.cvpr23_fig5b",
        ),
        ("artefacts/cvpr23_fig5b/show", {"right": ["rst"]}, "the rows of cvpr23_fig5b, found 'rst'"),
        ("artefacts/plusplus_fig8a/columns", ["true_union"], "can show .*found true_union"),
        ("artefacts/extra_curves/columns", ["NAT"], "no columns for artefacts.extra_curves"),
        ("artefacts/extra_curves/show", {"of": "gamma"}, "methods of several learners .*found at"),
        (
            "artefacts/zipper_fig5/watch",
            {"examples": 500},
            "artefacts.zipper_fig5.watch .*found no moments",
        ),
        ("artefacts/zipper_fig5/methods", ["at", "generalist_t"], "one row for artefacts.zipper_fig5"),
        ("artefacts/zipper_fig6/methods", ["at"], "methods of several learners"),
        (f"{TABLE}/watch", {"examples": 500, "moments": [1]}, "no watch for artefacts.cvpr23_table1a"),
        (f"{TABLE}/show", {"right": ["at"]}, "show with nothing for artefacts.cvpr23_table1a"),
        ("columns/AA/mean", ["NAT"], "only published beside mean at columns.AA"),
        ("columns/NAT/threat", "linf", "only published beside attack: none at columns.NAT"),
        ("columns/C5/severities", [6], "at most 5 at columns.C5.severities.0"),
    ],
)
def test_no_typo_passes(path, value, message, tmp_path):
    grid = copy.deepcopy(GRID)
    set_at(grid, path, value)
    with pytest.raises(UserError, match=message) as caught:
        planned(grid, tmp_path)
    assert "\n" not in str(caught.value)
    assert re.match("(.*: )?expected .+, found.+; .+", str(caught.value))


def test_what_a_kind_needs_may_be_missing(tmp_path):
    for artefact, key, message in (
        ("cvpr23_table1a", "columns", "1 or more columns for artefacts.cvpr23_table1a, a table"),
        ("cvpr23_fig3", "vary", "methods or vary at artefacts.cvpr23_fig3"),
        ("cvpr23_fig5b", "show", "show with right or wrong for artefacts.cvpr23_fig5b, a gallery"),
        ("extra_curves", "show", "show with of for artefacts.extra_curves, a curves"),
        ("zipper_fig5", "watch", "a watch for artefacts.zipper_fig5, a learners"),
    ):
        grid = copy.deepcopy(GRID)
        del grid["artefacts"][artefact][key]
        with pytest.raises(UserError, match=message):
            planned(grid, tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "datasets/cifar11",
            "digits",
            "known dataset in scale ci, found 'cifar11'; did you mean 'cifar1",
        ),
        ("datasets/cifar10", "digit", "did you mean 'digits'"),
        ("networks/resnet81", "tiny", "did you mean 'resnet18'"),
        ("methods/generalst", {"c": "1/3"}, "did you mean 'generalist'"),
        ("methods/generalist/avrage", {"decay": 0.5}, "did you mean 'average'"),
        ("presets/offical", {}, "did you mean 'official'"),
        ("presets/released/singl", {}, "did you mean 'single'"),
        ("presets/released/selection", {"gte": 0.5}, "did you mean 'gate'"),
        ("left_out", {"cvpr23_tabel1b": "no time"}, "did you mean 'cvpr23_table1"),
        ("artefacts/cvpr23_tabel1b", {}, "did you mean 'cvpr23_table1"),
        ("artefacts/extra_official/colums", ["NAT"], "found the key 'colums'; did you mean 'columns'"),
        ("artefacts/extra_official/kind", "tables", "known kind .*did you mean 'table'"),
        ("rows", ["at@offical"], "did you mean 'official'"),
        ("seeds", [-1], "at least 0 at seeds.0 of ci.yaml, found -1"),
        ("recipe/epochs", 3.0, "type integer at recipe.epochs of ci.yaml, found 3.0"),
        ("selection/gate", math.nan, r"a natural accuracy in \[0,1\] at selection.gate"),
    ],
)
def test_no_typo_passes_in_a_scale(path, value, message):
    scale = copy.deepcopy(SCALE)
    set_at(scale, path, value)
    with pytest.raises(UserError, match=message):
        Plan(GRID, fitting(scale, "scale", "ci.yaml"), "ci")


LAUGHS = "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(2, 25))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "each key once in grid.yaml, found 'a' in line 1 and again in line 3"),
        ("{a: {b: 1,\n b: 2}}", "found 'b' in line 1 and again in line 2"),
        ('{1: a, "1": b}', "found '1' in line 1 and again"),
        ("a: .nan", "finite numbers in grid.yaml, found .nan in line 1"),
        ("a: [1, -.inf]", "found -.inf in line 1"),
        ("a: 1.0e+999", "found 1.0e.999 in line 1"),
        ("a: &x {b: *x}", "an alias inside its own anchor"),
        ("a: &x [*x]", "an alias inside its own anchor"),
        ("? [a]\n: b", "a key that is no text"),
        ("a: !!int ''", "plain YAML in grid.yaml"),
        ("[" * 100_000, "plain YAML in grid.yaml"),
        ("a: &a1 [1, 1]\n" + LAUGHS, "more than 1000000 entries"),
    ],
)
def test_yaml_is_read_strictly(text, message):
    with pytest.raises(UserError, match=message):
        parse_yaml(text, "grid.yaml")


def test_merge_keys_and_anchors_still_work():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: *a\nd: {<<: [*a, {z: 4}]}\nno: 2020-01-01"
    assert parse_yaml(text, "") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 3, "y": 2},
        "c": {"x": 1, "y": 2},
        "d": {"x": 1, "y": 2, "z": 4},
        "no": "2020-01-01",
    }


def test_a_negative_radius_gets_no_advice_about_grey_levels():
    for size in ("-1/10", "-8"):
        with pytest.raises(UserError) as caught:
            Ball("linf", Fraction(size))
        assert f"found eps = {size}; write 8/255." in str(caught.value)


def test_unknown_words_for_snakemake_are_refused(tmp_path):
    """`scal=lite` planned smoke."""
    for word, hint in (("scal=lite", "did you mean 'scale'"), ("device=gpu", "found 'gpu'")):
        words = ["--snakefile", str(ROOT / "Snakefile"), "--cores", "1", "-n", "--config", word]
        done = command("snakemake", *words, cwd=tmp_path)
        assert done.returncode != 0
        assert hint in said(done)
        assert "Traceback" not in said(done)


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
        assert read_spec(plan.training_spec(run)) == plan.trunks.stretch(plan.run(run))
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
    own = {"artefacts": {"cvpr23_table2": {"seeds": {"mnist": 3, "svhn": 1}}}}
    rows = Plan(GRID, {**scale, **own}, "lite").artefacts["cvpr23_table2"].rows
    assert {(row.dataset, len(row.runs)) for row in rows} == {("mnist", 3), ("svhn", 1)}
    for seeds, message in (
        ({"mnits": 3, "svhn": 1}, "did you mean 'mnist'"),
        ({"mnist": 3}, "svhn in the seeds of .* found mnist"),
    ):
        own["artefacts"]["cvpr23_table2"]["seeds"] = seeds
        with pytest.raises(UserError, match=message):
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
    kept = ("cvpr23_table1a", "plusplus_fig8a")
    out = {name: "it would have no row" for name in GRID["artefacts"] if name not in kept}
    scale = {**read_scale("ci"), "rows": ["nt", "at", "generalist_d_nt_linf"], "left_out": out}
    plan = Plan(GRID, scale, "ci")
    assert [row.method for row in plan.artefacts["cvpr23_table1a"].rows] == scale["rows"]
    assert plan.artefacts["plusplus_fig8a"].show["right"] == ["generalist_d_nt_linf"]
    assert plan.rows_of("cvpr23_table1a") == Plan.read("ci").rows_of("cvpr23_table1a")
    with pytest.raises(UserError, match="did you mean 'trades"):
        Plan(GRID, {**scale, "rows": ["tradse6"]}, "ci")
    del out["zipper_table5"]
    with pytest.raises(UserError, match=r"among the scale's rows, .* artefacts\.zipper_table5"):
        Plan(GRID, scale, "ci")
