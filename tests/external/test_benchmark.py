"""`benchmark`: numbers that belong to the network at hand, and a report that says what they are of."""

import copy
import subprocess
import sys
from fractions import Fraction

import networks
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT, command
from networks import SMALL
from PIL import Image
from torch import nn

from harness import benchmark
from harness.core.errors import UserError
from harness.data import load
from harness.evaluation.records import Record
from harness.external.doubts import RESCALED, unchanged
from harness.external.images import dataset
from harness.external.question import asked, exact


@pytest.fixture(scope="module")
def net():
    return networks.trained()


@pytest.fixture
def ask(tmp_path):
    def asking(model, attacks="pgd", **words):
        options = {**SMALL, "results": tmp_path / "results", "attacks": attacks}
        return benchmark(model, **{**options, **words})

    return asking


def natural(report) -> float:
    return float(report.table.set_index("column")["percent"]["NAT"])


# --- records belong to the network at hand


LOADS = (
    "import torch\nfrom pathlib import Path\nfrom torch import nn\nimport beside\n\n\n"
    "def build():\n    model = beside.plain()\n"
    "    model.load_state_dict(torch.load(Path(__file__).with_name('own.pt'), weights_only=True))\n"
    "    return model\n"
)
PLAIN = networks.SOURCE.replace("build", "plain")


def test_weights_that_the_function_loads_itself(net, tmp_path, ask):
    """The file is the same, and no --weights is given: the numbers must be those of the new weights."""
    (tmp_path / "loads.py").write_text(LOADS)
    (tmp_path / "beside.py").write_text(PLAIN)
    found = []
    for model in (net, networks.plain()):
        torch.save(model.state_dict(), tmp_path / "own.pt")
        found.append(natural(ask(f"{tmp_path}/loads.py:build")))
    assert found[0] > 90 > 50 > found[1]


def test_an_imported_module_that_changed(net, tmp_path, ask):
    (tmp_path / "loads.py").write_text(LOADS)
    (tmp_path / "beside.py").write_text(PLAIN)
    torch.save(net.state_dict(), tmp_path / "own.pt")
    first = ask(f"{tmp_path}/loads.py:build")
    (tmp_path / "beside.py").write_text(PLAIN.replace("ReLU", "Tanh"))
    del sys.modules["beside"]  # as a new process would find it
    second = ask(f"{tmp_path}/loads.py:build")
    del sys.modules["beside"]
    assert first.about["records"] + ".1" == second.about["records"]
    assert not np.array_equal(first.flags["predicted"], second.flags["predicted"])


class Through(torch.autograd.Function):
    """The identity, whose gradient is another one."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Straight(networks.Around):
    def forward(self, x):
        return self.model(Through.apply(x))


def test_a_gradient_that_changed(net, ask):
    """The outputs are the same, the attacks are not."""
    same, other = networks.Around(net), Straight(net)
    other.__class__.__name__ = "Around"
    names = [ask(model).about["records"] for model in (same, other, same)]
    assert names[0] == names[2] != names[1]


def test_a_second_call_computes_nothing(net, tmp_path, ask):
    first = ask(net, attacks="aa")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*/*/*.npz")}
    second = ask(copy.deepcopy(net), attacks="aa")
    assert {path: path.stat().st_mtime_ns for path in times} == times
    pd.testing.assert_frame_equal(first.table, second.table)
    pd.testing.assert_frame_equal(first.flags, second.flags)


def test_records_of_another_network_are_refused(net):
    images = load("digits", "test").take(slice(100))
    x = torch.from_numpy(images.x) / 255
    record = Record(images.y == images.y, images.y.astype(np.int16), images.y * 0 - 1, 1, 0, 100, 0)
    with pytest.raises(UserError, match=r"natural accuracy of the network at hand .*found"):
        unchanged(lambda rows: networks.plain()(x[rows]).argmax(dim=1), images.y, record, 50, False)
    true = net(x).argmax(dim=1).numpy()
    kept = Record(true == images.y, true.astype(np.int16), images.y * 0 - 1, 1, 0, 100, 0)
    assert unchanged(lambda rows: net(x[rows]).argmax(dim=1), images.y, kept, 50, False).ok


# --- reports


def test_reports_of_other_questions_lie_beside_each_other(net, ask):
    words = [{}, {"eps": "8/255"}, {"examples": 40}, {"norm": "l2"}, {"seed": 1}, {"batch_size": 20}]
    reports = [ask(net, **own) for own in words] + [ask(net, attacks="aa")]
    folders = [report.save() for report in reports]
    assert len(set(folders)) == len(words) + 1
    for report, folder in zip(reports, folders, strict=True):
        text = (folder / "report.md").read_text()
        html = (folder / "report.html").read_text()
        for name in ("radii", "weights", "source", "generated corruptions", "made", "images"):
            assert f"- {name}: " in text
            assert f"<td>{name}</td>" in html
        assert "commit " in text
        read = pd.read_csv(folder / "flags.csv")
        assert list(read.columns) == ["label", "NAT", "predicted", report.table["column"][1]]
    assert "radii: linf 8/255" in (folders[1] / "report.md").read_text()
    assert "radii: l2 128/255" in (folders[3] / "report.md").read_text()


def test_the_flags_are_those_of_the_table(net, ask):
    report = ask(net, attacks=["aa", "square"])
    flags, table = report.flags, report.table.set_index("column")
    assert list(flags["label"]) == list(load("digits", "test").take(slice(60)).y)
    for name in ("NAT", "AA", "Square"):
        assert 100 * flags[name].mean() == pytest.approx(table["percent"][name], abs=0.005)
    assert (flags["NAT"] == (flags["label"] == flags["predicted"])).all()
    assert (flags["AA"] <= flags["NAT"]).all()
    assert "NAT" in repr(report)
    assert "checks held" in repr(report)


def test_gradient_calls_of_components_are_added(net, ask):
    parts = ("apgd-ce", "apgd-t", "fab-t", "square")
    table = ask(net, attacks=[*parts, "aa"]).table.set_index("column")["gradient_calls"]
    assert table["AA"] == sum(table[name] for name in ("APGD_CE", "APGD_T", "FAB_t", "Square"))
    assert table["AA"] > table.drop("AA").max() > 0


def test_flips_are_no_accuracy_and_only_evaluated_images_are_corrupted(net, ask, tmp_path, monkeypatch):
    monkeypatch.setenv("GENERALIST_CACHE", str(tmp_path / "cache"))
    report = ask(net, attacks="C5,P_flips", examples=20)
    measures = report.table.set_index("column")["measures"]
    assert measures["C5"] == "accuracy"
    assert "no accuracy" in measures["P_flips"]
    assert "P_flips (share of flips, no accuracy" in repr(report)
    sizes = [len(np.load(path, mmap_mode="r")) for path in (tmp_path / "cache").rglob("x.npy")]
    assert sorted(set(sizes)) == [20, 20 * 16, 20 * 21, 20 * 31]
    assert report.about["generated corruptions"] == "digits-c, digits-p"
    part, whole = load("digits-c/fog/5", "test", 20), load("digits-c/fog/5", "test")
    assert np.array_equal(part.x, whole.x[:20])
    assert np.array_equal(load("digits-c/fog/5", "test", 20).x[:20], part.x)


def test_a_saturated_network_is_not_believed(net, ask):
    """Its logits are the other network's, 20 times, as probabilities: it is no more robust."""
    words = {"attacks": "aa", "eps": "24/255", "examples": 200, "batch_size": 100}
    true, masked = ask(net, **words), ask(networks.Saturated(net), **words)
    rows = [report.table.set_index("column").loc["AA"] for report in (true, masked)]
    assert rows[1]["percent"] > rows[0]["percent"] + 5  # the trap
    checks = [report.checks.set_index("check")["verdict"][RESCALED] for report in (true, masked)]
    assert checks == ["held", "failed"]
    assert rows[0]["doubts"] == ""
    assert RESCALED in rows[1]["doubts"]
    assert "do not believe AA" in repr(masked)
    assert "do not believe NAT" not in repr(masked)
    assert masked.save() != true.save()
    assert "| **do not believe**: " in (masked.folder / "report.md").read_text()


def test_a_network_that_draws_at_random(net, ask):
    noisy = networks.Noisy(net)
    standard, rand = ask(noisy, attacks="aa"), ask(noisy, attacks="rand")
    (check,) = [row for row in standard.checks.itertuples() if row.check == "deterministic logits"]
    assert check.verdict == "failed"
    assert "--attacks rand" in check.found
    assert "deterministic logits" in standard.table["doubts"][1]
    assert rand.table["column"][1] == "AA_rand"
    assert "deterministic logits" not in rand.table["doubts"][1]
    # 20 passes for each gradient: two APGDs of three steps, and their first gradients.
    assert rand.table["gradient_calls"][1] == 2 * 20 * (3 + 1)


# --- words


@pytest.mark.parametrize("eps", [8 / 255, "8/255", Fraction(8, 255)])
def test_a_radius_is_exact(eps):
    assert exact(eps) == Fraction(8, 255)
    (column,) = asked("digits", "pgd", eps=eps, scale="ci").shown[1:]
    assert column.balls[0].eps == Fraction(8, 255)


def test_a_step_is_in_proportion_to_the_radius():
    (usual,) = asked("digits", "pgd", scale="ci").shown[1:]
    (half,) = asked("digits", "pgd", eps="18/255", scale="ci").shown[1:]
    assert (usual.balls[0].eps, half.balls[0].eps) == (Fraction(36, 255), Fraction(18, 255))
    assert half.probes[0].attack.step * 2 == usual.probes[0].attack.step


def test_steps_norm_and_names():
    shown = asked("digits", "pgd,cw,AA,APGD_t", norm="l2", steps=7, scale="ci").shown
    assert [column.name for column in shown] == ["NAT", "PGD7", "CW7", "AA", "APGD_t"]
    assert [column.norms for column in shown] == [set(), {"l2"}, {"l2"}, {"l2"}, {"l2"}]
    assert shown[1].promised == 7
    every = {column.name for column in asked("digits", "all", scale="ci").shown}
    assert {"NAT", "PGD100", "AA", "AA_2", "true_union", "C", "P_flips"} <= every
    assert not {"minutes", "PGD20_inf"} & every


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"attacks": "pdg"}, "known column or attack in --attacks, found 'pdg'; did you mean 'pgd'"),
        ({"norm": "l3"}, "known norm"),
        ({"eps": "8"}, "write 8/255 if you meant grey levels"),
        ({"eps": "eight"}, "a number or fraction for --eps, found 'eight'; write 8/255"),
        ({"norm": "l1", "dataset": "mnist"}, "a radius for l1 on mnist, found none; give one"),
        ({"dataset": "cifar10"}, "cifar10, found its stand-in at scale ci, digits; add --scale paper"),
        ({"attacks": "PGD20", "steps": 5}, "--steps with pgd or mim or cw, found PGD20"),
        ({"attacks": "minutes"}, "a column that can be measured here, found minutes"),
    ],
)
def test_a_question_that_makes_no_sense(words, message):
    known = {"dataset": "digits", "attacks": "aa", "scale": "ci"}
    if words.get("dataset") == "mnist":
        known["scale"] = "paper"
    with pytest.raises(UserError, match=message):
        asked(**{**known, **words})


# --- images of one's own


@pytest.mark.parametrize("kind", ["uint8", "unit", "grey", "last"])
def test_own_images_in_an_archive(kind, net, tmp_path, ask):
    images = load("digits", "test").take(slice(60))
    x = {
        "uint8": images.x,
        "unit": images.x.astype(np.float32) / 255,
        "grey": images.x[:, 0],
        "last": images.x.transpose(0, 2, 3, 1),
    }[kind]
    np.savez(tmp_path / "mine.npz", x=x, y=images.y)
    report = ask(net, data=str(tmp_path / "mine.npz"), eps="36/255")
    known = ask(net)
    assert natural(report) == natural(known)
    assert report.flags["predicted"].equals(known.flags["predicted"])
    assert "mine_" in report.about["images"]


def test_own_images_in_folders(tmp_path):
    images = load("digits", "test").take(slice(60))
    for number, (x, y) in enumerate(zip(images.x, images.y, strict=True)):
        (tmp_path / "digits" / str(y)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[0]).save(tmp_path / "digits" / str(y) / f"{number:03d}.png")
    found = load(dataset(str(tmp_path / "digits")), "test")
    order = np.argsort(images.y, kind="stable")
    assert np.array_equal(found.x, images.x[order])
    assert np.array_equal(found.y, images.y[order])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 1, 8, 8), np.uint8)}, "the arrays x and y in .*, found the arrays x; "),
        ({"x": np.zeros((4, 8), np.uint8), "y": np.arange(4)}, r"images .*found an array \(4, 8\)"),
        ({"x": np.full((4, 1, 8, 8), 0.123), "y": np.arange(4)}, "8-bit images .*with levels between"),
        ({"x": np.full((4, 1, 8, 8), -1.0), "y": np.arange(4)}, r"images in \[0,1\] or uint8"),
        ({"x": np.zeros((4, 1, 8, 8)), "y": np.arange(3)}, "4 whole numbers from 0 on as labels"),
    ],
)
def test_own_images_that_are_none(arrays, message, tmp_path):
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(UserError, match=message):
        dataset(str(tmp_path / "odd.npz"))


def test_own_images_that_are_not_there():
    with pytest.raises(UserError, match=r"images in none.npz, found no such file"):
        dataset("none.npz")


# --- from outside


def test_importing_the_package_imports_no_torch():
    code = "import sys, harness; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_command_does_the_same(net, tmp_path, ask):
    """It says what it will do, prints the table, and takes the records that Python made."""
    torch.save(net.state_dict(), tmp_path / "w.pt")
    (tmp_path / "net.py").write_text(networks.SOURCE)
    report = ask(f"{tmp_path}/net.py:build", attacks="aa", weights=tmp_path / "w.pt")
    words = ["--model", "net.py:build", "--weights", "w.pt", "--data", "digits", "--scale", "ci"]
    words += ["--examples", "60", "--batch-size", "30", "--device", "cpu"]
    done = command("harness", "evaluate", *words, cwd=tmp_path, check=True)
    assert done.stderr.splitlines()[1] == "2 records for NAT, AA"
    assert "forward and" in done.stderr
    assert "evaluate external-" not in done.stderr  # nothing is computed
    same = repr(report).partition("\n")[2]
    assert same in done.stdout  # but for the first line, which has the address
    assert done.stdout.splitlines()[-1].startswith("the report is at results/external/external-net-bu")


def test_all_says_what_it_will_do(net, tmp_path, capsys, monkeypatch):
    from harness.external.benchmark import prepared

    monkeypatch.setenv("GENERALIST_CACHE", str(tmp_path / "cache"))
    prepared(net, results=tmp_path, attacks="all", **{**SMALL, "quiet": False})
    said = capsys.readouterr().err
    assert "on the first 60 of 500 test images of digits" in said
    assert "at most " in said
    assert "85 corrupted sets are made first, or read: 0.0" in said
    assert not (tmp_path / "cache").exists()


def test_progress_within_a_batch(net, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("harness.core.process._LOG_SECONDS", 0.0)
    words = {**SMALL, "batch_size": 60}
    benchmark(nn.Sequential(net), attacks="pgd", results=tmp_path, **words)
    lines = [line for line in capsys.readouterr().err.splitlines() if "pgd" in line]
    shown = [int(line.partition(" %")[0].split()[-1]) for line in lines]
    assert shown == sorted(shown)
    assert len({number for number in shown if 0 < number < 100}) > 5
