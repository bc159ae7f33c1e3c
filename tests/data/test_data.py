import gzip
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import generator, run_of
from PIL import Image
from scipy.io import savemat

from harness.core.errors import UserError
from harness.core.paths import canonical
from harness.data import load
from harness.data.sets import SETS
from harness.machine import distributed
from harness.machine.device import import_torchvision
from harness.training import feed
from harness.training.batches import Batches, augmented
from harness.training.feed import cropped, random_box
from harness.training.runs import Augment, TrainRun

RNG = np.random.default_rng(0)
CPU = torch.device("cpu")


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    return head + array.tobytes()


def write_mnist(folder, compress=lambda data: data):
    x = RNG.integers(256, size=(40, 28, 28), dtype=np.uint8)
    y = (np.arange(40) % 10).astype(np.uint8)
    for split in ("train", "test"):
        for file, array in zip(SETS["mnist"].files[split], (x, y), strict=True):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(compress(idx(array)))
    return x, y


@pytest.mark.parametrize("compress", [lambda data: data, gzip.compress])
def test_mnist(folder, compress):
    x, y = write_mnist(folder, compress)
    images = load("mnist", "test")
    assert np.array_equal(images.x[:, 0], x)
    assert np.array_equal(images.y, y)


def write_cifar(folder, name, key, protocol=4):
    classes = SETS[name].classes
    rows = RNG.integers(256, size=(2 * classes, 3072), dtype=np.uint8)
    for split in ("train", "test"):
        for file in SETS[name].files[split]:
            (folder / file).parent.mkdir(exist_ok=True)
            content = {"data": rows, key: [i % classes for i in range(2 * classes)]}
            (folder / file).write_bytes(pickle.dumps(content, protocol=protocol))
    return rows


@pytest.mark.parametrize(("name", "key"), [("cifar10", "labels"), ("cifar100", "fine_labels")])
@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar(folder, name, key, protocol):
    rows = write_cifar(folder, name, key, protocol)
    images = load(name, "train+validation")
    count = len(rows) * len(SETS[name].files["train"])
    assert len(images) == count
    assert np.array_equal(images.x[: len(rows)].reshape(len(rows), -1), rows)
    assert images.source == f"local folder, subset {count} of 50000"


def test_svhn_calls_a_zero_zero(folder):
    x = RNG.integers(256, size=(32, 32, 3, 20), dtype=np.uint8)
    for file in ("train_32x32.mat", "test_32x32.mat"):
        savemat(folder / file, {"X": x, "y": np.arange(20)[:, None] % 10 + 1})
    images = load("svhn", "test")
    assert np.array_equal(images.x[3], x[..., 3].transpose(2, 0, 1))
    assert images.y[9] == 0


class Payload:
    def __reduce__(self):
        return print, ("code in a data file was run",)


def test_a_hostile_pickle_is_refused(folder, capsys):
    for file in SETS["cifar100"].files["test"]:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(UserError, match="expected only arrays"):
        load("cifar100", "test")
    assert "was run" not in capsys.readouterr().out


def test_a_truncated_file_is_refused(folder):
    write_mnist(folder, lambda data: data[:-5])
    with pytest.raises(UserError, match="fetch it again"):
        load("mnist", "test")


def test_a_label_out_of_range_is_refused(folder):
    write_mnist(folder)
    bad = np.full(40, 11, np.uint8)
    (folder / SETS["mnist"].files["test"][1]).write_bytes(idx(bad))
    with pytest.raises(UserError, match=r"labels in 0\.\.9"):
        load("mnist", "test")


def test_missing_data_says_where_to_put_it(folder, monkeypatch):
    def offline(*_):
        raise OSError("no network")

    monkeypatch.setattr("harness.machine.device.torchvision_datasets", offline)
    monkeypatch.setattr("harness.data.sources.npm_pack", offline)
    with pytest.raises(UserError, match="put the files there, set GENERALIST_DATA"):
        load("cifar10", "test")


def test_torchvision_imports_beside_a_cpu_torch():
    from harness.machine.device import torchvision_datasets

    assert hasattr(torchvision_datasets(), "CIFAR10")


@pytest.mark.parametrize("name", ["digits", "digits20", "digits40"])
def test_stand_ins(name):
    sizes = {split: len(load(name, split)) for split in ("train", "validation", "train+validation")}
    assert sizes["train"] + sizes["validation"] == sizes["train+validation"]
    test = load(name, "test")
    assert test.x.dtype == np.uint8
    assert test.x.max() == 255
    assert set(np.unique(test.y)) == set(range(SETS[name].classes))


def test_validation_is_fixed_and_disjoint_from_train():
    rows = {
        split: {image.tobytes() for image in load("digits", split).x}
        for split in ("train", "validation")
    }
    assert not rows["train"] & rows["validation"]
    assert np.array_equal(load("digits", "validation").x, load("digits", "validation").x)


def test_unknown_names():
    with pytest.raises(UserError, match="did you mean 'cifar10'"):
        load("cifar11", "test")
    with pytest.raises(UserError, match="did you mean 'test'"):
        load("digits", "tset")


def test_augmentation_crops_and_mirrors():
    pixels = torch.arange(256, dtype=torch.uint8).reshape(4, 1, 8, 8)
    plain = augmented(pixels, Augment(0, False), generator())
    assert torch.equal((plain * 255).round().to(torch.uint8), pixels)
    mirrored = augmented(pixels.repeat(16, 1, 1, 1), Augment(0, True), generator())
    originals = (
        pixels.repeat(16, 1, 1, 1).float() / 255,
        pixels.repeat(16, 1, 1, 1).flip(-1).float() / 255,
    )
    kept = (mirrored == originals[0]).flatten(1).all(1)
    flipped = (mirrored == originals[1]).flatten(1).all(1)
    assert (kept | flipped).all()
    assert kept.any()
    assert flipped.any()


def test_a_crop_is_a_window_of_the_padded_image():
    pixels = torch.randint(1, 256, (30, 2, 6, 6), generator=generator(), dtype=torch.uint8)
    cropped = (augmented(pixels, Augment(2, False), generator(1)) * 255).round().to(torch.uint8)
    padded = torch.nn.functional.pad(pixels, [2] * 4)
    windows = padded.unfold(2, 6, 1).unfold(3, 6, 1)  # (n, c, 5, 5, 6, 6)
    found = (windows == cropped[:, :, None, None]).all(dim=(1, 4, 5)).flatten(1)
    assert (found.sum(dim=1) >= 1).all()
    assert len(found.float().argmax(dim=1).unique()) > 10


def test_cutout_blackens_one_square_that_may_hang_over_the_edge():
    pixels = torch.full((500, 3, 8, 8), 255, dtype=torch.uint8)
    cut = augmented(pixels, Augment(0, False, cutout=4), generator())
    black = cut == 0
    assert torch.equal(black.any(dim=1), black.all(dim=1))
    rows, columns = black[:, 0].any(dim=2).sum(dim=1), black[:, 0].any(dim=1).sum(dim=1)
    assert torch.equal(black[:, 0].sum(dim=(1, 2)), rows * columns)
    assert rows.max() == columns.max() == 4
    assert rows.min() == columns.min() == 2
    assert torch.equal(cut, augmented(pixels, Augment(0, False, cutout=4), generator()))


def test_no_cutout_leaves_identity_and_random_stream_as_they_were():
    pixels = torch.randint(1, 256, (20, 1, 8, 8), generator=generator(), dtype=torch.uint8)
    plain, cut = (augmented(pixels, Augment(1, True, size), generator(1)) for size in (None, 3))
    assert torch.equal(torch.where(cut == 0, cut, plain), cut)
    assert "cutout" not in canonical(Augment(1, True))


def noise(height: int, width: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize(("height", "width", "side"), [(40, 40, 32), (30, 50, 8), (60, 9, 16)])
def test_a_resized_crop_is_torchvision_s(height, width, side):
    """The same box gives the same pixels, enlarged or shrunk."""
    import_torchvision()
    from torchvision.transforms.functional import resized_crop

    for seed in range(12):
        image, draws = noise(height, width, seed), np.random.default_rng(seed).random((10, 4))
        theirs = resized_crop(image, *random_box(height, width, draws), [side, side])
        assert np.array_equal(cropped(image, draws, side), np.asarray(theirs).transpose(2, 0, 1))


@pytest.mark.parametrize(("height", "width"), [(32, 32), (16, 64), (64, 16)])
def test_random_boxes_are_distributed_as_torchvision_s(height, width):
    """Means and deviations of 2,000 boxes; the long shapes often fall back on their middle."""
    import_torchvision()
    from torchvision.transforms import RandomResizedCrop

    count, image = 2000, torch.empty(1, height, width)
    numbers = np.random.default_rng(0).random((count, 10, 4))
    ours = torch.tensor([random_box(height, width, draws) for draws in numbers]).float()
    torch.manual_seed(0)
    draws = [RandomResizedCrop.get_params(image, [0.08, 1], [3 / 4, 4 / 3]) for _ in range(count)]
    theirs = torch.tensor(draws).float()
    error = 5 * theirs.std(dim=0) / count**0.5 * 2**0.5
    assert ((ours.mean(dim=0) - theirs.mean(dim=0)).abs() <= error + 1e-6).all()
    assert torch.allclose(ours.std(dim=0), theirs.std(dim=0), rtol=0.1)
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= torch.tensor([height, width])).all()


def cropping(plan, **changes) -> TrainRun:
    """A run on digits whose images are cropped by the feed, as ImageNet's are."""
    recipe = replace(run_of(plan, "nt").recipe, augment=Augment(0, True, random_resized_crop=6))
    return run_of(plan, "nt", recipe=replace(recipe, **changes))


def test_a_resized_crop_of_a_batch_comes_from_its_step_alone(plan, monkeypatch):
    """In any order, read ahead or not, after a restart."""
    run = cropping(plan, batch_size=7, examples=30)
    batches, one = Batches(run, CPU), Batches(run, CPU)
    order = batches.order(0)
    made = [batches.at(order, 0, step) for step in range(5)]
    assert made[0].x.shape == (7, 1, 6, 6)
    assert len(made[4].x) == 2
    assert len(one.source.begun) == 0
    assert torch.equal(one.at(order, 0, 3).x, made[3].x)
    assert list(one.source.begun) == [(0, 4)]  # the step after the next is of another epoch
    assert not torch.equal(one.at(order, 1, 3).x, made[3].x)
    monkeypatch.setattr(feed, "_AHEAD", 0)
    alone = Batches(run, CPU)
    for step, batch in enumerate(made):
        again = alone.at(alone.order(0), 0, step)
        assert torch.equal(again.x, batch.x)
        assert torch.equal(again.y, batch.y)
        assert not alone.source.begun
    assert "random_resized_crop" not in canonical(Augment(1, True))
    with pytest.raises(UserError, match="write pad: 0"):
        Augment(4, True, random_resized_crop=12)


def test_a_set_too_large_for_the_device_gives_the_same_batches(plan, monkeypatch):
    run = run_of(plan, "nt")
    batches = Batches(run, CPU)
    monkeypatch.setattr("harness.training.batches._ON_DEVICE_BYTES", 100)
    large, order = Batches(run, CPU), batches.order(1)
    assert isinstance(large.source, feed.Feed)
    for step in (0, batches.steps_per_epoch - 1):
        assert torch.equal(large.at(order, 1, step).x, batches.at(order, 1, step).x)


def test_processes_that_share_a_batch_crop_their_slices_of_it(plan, monkeypatch):
    run = cropping(plan, batch_size=7)
    one = Batches(run, CPU)
    order = one.order(0)
    together = one.source.at(order, 0, 1)
    monkeypatch.setattr(distributed._Team, "size", 2)
    for rank, rows in enumerate((slice(0, 3), slice(3, 7))):
        monkeypatch.setattr(distributed._Team, "rank", rank)
        assert torch.equal(Batches(run, CPU).source.at(order, 0, 1), together[rows])
