import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.core.errors import UserError
from harness.data import frames, load
from harness.data.corruptions import CORRUPTIONS, EXTRA, MAIN, SEVERITIES, corrupt
from harness.data.corruptions.linear import box_matrix
from harness.data.corruptions.sequences import FRAMES, film, flips
from harness.data.corruptions.textures import frost_source, frost_textures

# Whose published strengths do not order the mean L2 distance: glass and motion blur vary sigma and
# radius in turn, frost darkens what it brightened, elastic trades affine jitter for local shifts,
# spatter changes from water to mud, saturate from less colour to more.
UNORDERED = {"glass_blur", "motion_blur", "frost", "elastic_transform", "spatter", "saturate"}


@pytest.fixture(scope="module")
def photos() -> np.ndarray:
    """48 crops, 32x32, of the two photographs inside scikit-learn."""
    origin = find_spec("sklearn").origin
    assert origin is not None
    crops = []
    for name in ("china.jpg", "flower.jpg"):
        picture = Image.open(Path(origin).parent / "datasets" / "images" / name).resize((192, 128))
        pixels = np.asarray(picture).transpose(2, 0, 1)
        crops += [
            pixels[:, i : i + 32, j : j + 32] for i in range(0, 128, 32) for j in range(0, 192, 32)
        ]
    return np.stack(crops)


def distortion(x: np.ndarray, changed: np.ndarray) -> float:
    difference = (changed.astype(float) - x) / 255
    return float(np.sqrt((difference**2).sum(axis=(1, 2, 3))).mean())


def test_the_fifteen_and_the_four():
    assert len(MAIN) == 15
    assert len(EXTRA) == 4
    assert all(len(strengths) == 5 for _, *strengths in CORRUPTIONS.values())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_deterministic_and_one_by_one_as_in_a_batch(photos, name):
    x = photos[:7]
    for severity in (1, 4, 5):
        batch = corrupt(x, name, severity, seed=3)
        assert batch.dtype == np.uint8
        assert batch.shape == x.shape
        assert np.array_equal(batch, corrupt(x, name, severity, seed=3))
        alone = [corrupt(x[i : i + 1], name, severity, seed=3, first=i) for i in range(len(x))]
        assert np.array_equal(batch, np.concatenate(alone))
    assert np.array_equal(corrupt(x, name, 0), x)


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - UNORDERED))
def test_distortion_grows_with_severity(photos, name):
    distances = [distortion(photos, corrupt(photos, name, severity)) for severity in SEVERITIES]
    assert distances[0] > 0
    assert all(np.diff(distances) > 0), distances


def test_distortion_grows_where_the_strengths_themselves_are_ordered(photos):
    def distances(name: str) -> list[float]:
        return [distortion(photos, corrupt(photos, name, severity)) for severity in SEVERITIES]

    glass, motion, frost = distances("glass_blur"), distances("motion_blur"), distances("frost")
    assert min(glass[3:]) > max(glass[:3])  # two rounds rather than one
    assert motion[0] < motion[1] < motion[2] < motion[4]
    assert frost[0] < frost[1]
    spatter, saturate = distances("spatter"), distances("saturate")
    assert spatter[0] < spatter[1] < spatter[2]
    assert spatter[3] < spatter[4]
    assert saturate[0] < saturate[1]
    assert saturate[2] < saturate[3] < saturate[4]
    assert min(distances("elastic_transform")) > 0


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 8, 16), (1, 28, 28), (3, 64, 64)])
def test_every_size_and_grey_images(name, shape):
    ramp = np.linspace(40, 200, shape[2])[None, None] + np.zeros(shape)
    x = np.stack([ramp, ramp[:, ::-1, ::-1]]).astype(np.uint8)
    changed = corrupt(x, name, 5)
    assert changed.shape == x.shape
    if name != "saturate" or shape[0] == 3:
        assert (changed != x).any()


@pytest.mark.parametrize(
    ("name", "severity", "sigma"),
    [
        ("gaussian_noise", 1, 0.04),
        ("gaussian_noise", 5, 0.10),
        ("speckle_noise", 3, 0.12 * 128 / 255),
        ("shot_noise", 2, (128 / 255 / 250) ** 0.5),
    ],
)
def test_noise_has_its_nominal_deviation(name, severity, sigma):
    x = np.full((40, 3, 32, 32), 128, np.uint8)
    noise = (corrupt(x, name, severity).astype(float) - x) / 255
    assert noise.std() == pytest.approx(sigma, rel=0.02)
    assert abs(noise.mean()) < 0.002


def test_impulses_are_half_salt_half_pepper():
    x = np.full((40, 3, 32, 32), 128, np.uint8)
    for severity, (amount,) in zip(SEVERITIES, CORRUPTIONS["impulse_noise"][1:], strict=True):
        changed = corrupt(x, "impulse_noise", severity)
        assert (changed == 255).mean() == pytest.approx(amount / 2, rel=0.1)
        assert (changed == 0).mean() == pytest.approx(amount / 2, rel=0.1)


@pytest.mark.parametrize(
    "name", ["gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"]
)
def test_blur_keeps_the_mean_and_a_plain_image(photos, name):
    plain = np.full((3, 3, 32, 32), 77, np.uint8)
    for severity in SEVERITIES:
        assert np.array_equal(corrupt(plain, name, severity), plain)
        if name != "zoom_blur":  # which uses the middle only
            shift = corrupt(photos, name, severity).mean() - photos.mean()
            assert abs(shift) < 1.5


def test_gaussian_blur_is_scipys(photos):
    from scipy.ndimage import gaussian_filter

    wanted = gaussian_filter(photos.astype(float), (0, 0, 0.8, 0.8), mode="nearest", truncate=4)
    assert np.abs(corrupt(photos, "gaussian_blur", 4) - wanted).max() <= 0.51


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_is_pillows(photos, channels):
    x = photos[:, :channels]
    for severity, (quality,) in zip(SEVERITIES, CORRUPTIONS["jpeg_compression"][1:], strict=True):
        buffer = io.BytesIO()
        pixels = x[0].transpose(1, 2, 0).squeeze()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=quality)
        wanted = np.asarray(Image.open(buffer)).reshape(32, 32, channels).transpose(2, 0, 1)
        assert np.array_equal(corrupt(x, "jpeg_compression", severity)[0], wanted)


def test_pixelate_is_pillows_box(photos):
    for severity, (kept,) in zip(SEVERITIES, CORRUPTIONS["pixelate"][1:], strict=True):
        small = (int(32 * kept),) * 2
        image = Image.fromarray(photos[0].transpose(1, 2, 0))
        shrunk = image.resize(small, Image.Resampling.BOX).resize((32, 32), Image.Resampling.BOX)
        ours = corrupt(photos, "pixelate", severity)[0].astype(int)
        assert np.abs(ours - np.asarray(shrunk).transpose(2, 0, 1)).max() <= 1
    assert np.allclose(box_matrix(32, 20).sum(axis=1), 1)


def test_brightness_and_saturation_are_those_of_hsv(photos):
    from colorsys import hsv_to_rgb, rgb_to_hsv

    bright, pale = corrupt(photos, "brightness", 3), corrupt(photos, "saturate", 4)
    for i, j in ((0, 0), (5, 20), (31, 7)):
        h, s, v = rgb_to_hsv(*photos[2, :, i, j] / 255)
        assert (
            np.abs(np.array(hsv_to_rgb(h, s, min(1, v + 0.15))) * 255 - bright[2, :, i, j]).max()
            <= 0.51
        )
        assert (
            np.abs(np.array(hsv_to_rgb(h, min(1, 2 * s + 0.1), v)) * 255 - pale[2, :, i, j]).max()
            <= 0.51
        )


def test_fog_takes_contrast_and_frost_is_bright(photos):
    assert corrupt(photos, "fog", 1).std(axis=(2, 3)).mean() < photos.std(axis=(2, 3)).mean()
    textures = frost_textures(32)
    assert len(textures) == 6
    assert all(0.3 < texture.mean() < 0.9 for texture in textures)
    assert all(min(texture.shape[1:]) >= 32 for texture in textures)


def test_frost_uses_the_photographs_where_they_are_installed(photos, tmp_path, monkeypatch):
    drawn = corrupt(photos, "frost", 3)
    assert frost_source() == "drawn"
    folder = tmp_path / "imagecorruptions" / "frost"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError('never imported')")
    for i in range(1, 7):
        file = folder / f"frost{i}.{'png' if i < 4 else 'jpg'}"
        Image.new("RGB", (400, 330), (255, 255, 255)).save(file)
    monkeypatch.syspath_prepend(tmp_path)
    assert frost_source() == "photographs of imagecorruptions"
    white = np.clip(0.9 * photos + 0.4 * 255, 0, 255)
    assert np.abs(corrupt(photos, "frost", 3) - white).max() < 1
    assert not np.array_equal(corrupt(photos, "frost", 3), drawn)


def test_bad_requests_are_refused(photos):
    with pytest.raises(UserError, match="did you mean 'fog'"):
        corrupt(photos, "fogg", 1)
    with pytest.raises(UserError, match=r"severity in 0\.\.5"):
        corrupt(photos, "fog", 6)
    with pytest.raises(UserError, match="8 to 64 pixels"):
        corrupt(np.zeros((1, 3, 224, 224), np.uint8), "fog", 1)


@pytest.mark.parametrize("name", FRAMES)
def test_films(photos, name):
    x = photos[:3]
    shots = film(x, name, seed=1)
    assert shots.shape == (3, FRAMES[name], 3, 32, 32)
    assert shots.dtype == np.uint8
    alone = [film(x[i : i + 1], name, seed=1, first=i) for i in range(len(x))]
    assert np.array_equal(shots, np.concatenate(alone))
    grey = load("digits", "test").x[:2]
    assert film(grey, name).shape == (2, FRAMES[name], 1, 8, 8)
    steps = np.abs(np.diff(shots.astype(int), axis=1)).mean(axis=(0, 2, 3, 4))
    assert (steps > 0).all()


def test_films_pass_through_the_clean_image(photos):
    x = photos[:3]
    for name, frame in {
        "gaussian_noise": 0,
        "shot_noise": 0,
        "zoom_blur": 0,
        "brightness": 15,
        "translate": 7,
        "rotate": 15,
        "tilt": 15,
        "scale": 15,
    }.items():
        assert np.array_equal(film(x, name)[:, frame], x), name
    moved = film(x, "translate")
    assert np.array_equal(moved[:, 10, :, :, 3:], x[:, :, :, :-3])


def test_flips_are_against_the_frame_before_or_for_noise_the_clean_one():
    predicted = np.array([[1, 1, 2, 2, 1], [3, 3, 3, 3, 3]])
    assert flips(predicted, "tilt").mean() == 2 / 8
    assert flips(predicted, "gaussian_noise").mean() == 2 / 8
    assert flips(np.array([[1, 2, 2, 2, 2]]), "tilt").mean() == 1 / 4
    assert flips(np.array([[1, 2, 2, 2, 2]]), "shot_noise").mean() == 1


def test_corrupted_sets_are_data_sets(folder):
    clean, fog = load("digits", "test"), load("digits-c/fog/3", "test")
    assert np.array_equal(fog.x, corrupt(clean.x, "fog", 3))
    assert np.array_equal(fog.y, clean.y)
    assert fog.classes == 10
    assert fog.name == "digits-c(generated)/fog/3"
    assert fog.source.startswith("generated (from digits: embedded")
    assert "frost" in load("digits-c/frost/1", "test").source
    assert np.array_equal(load("digits-c/fog/3", "test").x, fog.x)  # from the cache

    tilt = load("digits-p/tilt", "test")
    count = frames("digits-p/tilt")
    assert count == 31
    assert np.array_equal(tilt.y.reshape(-1, count), clean.y[:, None].repeat(count, axis=1))
    assert np.array_equal(tilt.x.reshape(-1, count, 1, 8, 8)[:, 15], clean.x)
    assert frames("digits") == frames("digits-c/fog/3") == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("digits-c/fogg/3", "did you mean 'fog'"),
        ("digits-c/fog/6", r"severity in 1\.\.5"),
        ("digits-c/fog", r"severity in 1\.\.5"),
        ("digits-p/tilt/1", "no severity"),
        ("digit-c/fog/1", "did you mean 'digits'"),
        ("digits/fog/1", "expected <set>-c"),
    ],
)
def test_misspelt_corrupted_sets(name, message):
    with pytest.raises(UserError, match=message):
        load(name, "test")


def test_corrupted_sets_have_no_training_split():
    with pytest.raises(UserError, match="only for testing"):
        load("digits-c/fog/3", "train")
