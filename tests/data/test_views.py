import pytest
import torch

from mlcl.data import augment, normalise
from mlcl.data.images import MEAN, STD

NOTHING = {"crop": 1.0, "flip": False, "jitter": 0.0, "grayscale": 0.0}


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (16, 3, 12, 10), dtype=torch.uint8, generator=generator())


def raw(views):
    """Returns views on the scale of 0 to 1."""
    return views * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_normalise_is_the_textbook_formula_and_all_that_is_left_with_nothing_on(pixels):
    views = normalise(pixels)
    assert views.dtype == torch.float32
    torch.testing.assert_close(views[3, 1, 2, 5], (pixels[3, 1, 2, 5] / 255 - MEAN[1]) / STD[1])
    assert torch.equal(augment(pixels, **NOTHING), views)


def test_a_generator_or_else_the_global_seed_decides_everything(pixels):
    first, second, other = (augment(pixels, generator=generator(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    torch.manual_seed(5)
    first = augment(pixels)
    torch.manual_seed(5)
    assert torch.equal(augment(pixels), first)


@pytest.mark.parametrize("switched_on", [{"crop": 0.2}, {"jitter": 0.4}])
def test_every_sample_draws_for_itself(pixels, switched_on):
    copies = pixels[:1].expand(16, -1, -1, -1)
    views = augment(copies, **(NOTHING | switched_on), generator=generator())
    assert len(views.flatten(1).unique(dim=0)) == 16


def test_values_stay_in_range(pixels):
    views = raw(augment(pixels, crop=0.1, jitter=1.0, generator=generator()))
    assert views.isfinite().all()
    assert views.min() >= -1e-5
    assert views.max() <= 1 + 1e-5
    assert views.shape == pixels.shape


def test_about_half_of_the_images_are_mirrored():
    pixels = torch.arange(30, dtype=torch.uint8).view(1, 3, 2, 5).expand(400, -1, -1, -1)
    views = augment(pixels, **(NOTHING | {"flip": True}), generator=generator())
    original_view, mirrored_view = normalise(pixels[:1]), normalise(pixels[:1]).flip(-1)
    is_mirrored = (views == mirrored_view).flatten(1).all(1)
    assert (is_mirrored | (views == original_view).flatten(1).all(1)).all()
    assert 160 < is_mirrored.sum() < 240


def test_gray_images_have_equal_channels(pixels):
    views = raw(augment(pixels, **(NOTHING | {"grayscale": 1.0}), generator=generator()))
    torch.testing.assert_close(views[:, 0], views[:, 1])
    torch.testing.assert_close(views[:, 0], views[:, 2])


def test_a_crop_is_a_part_of_the_image():
    # Each image is a ramp from left to right; a crop must be a ramp over a smaller range of values.
    ramp = torch.linspace(0, 255, 64).to(torch.uint8).expand(200, 3, 64, 64)
    views = raw(augment(ramp, **(NOTHING | {"crop": 0.2}), generator=generator()))
    stretch = views[:, 0, 32, -1] - views[:, 0, 32, 0]
    assert (stretch > 0).all()
    assert stretch.max() <= 1
    # Width is the root of area times ratio, with area in [0.2, 1] and ratio in [3/4, 4/3].
    assert 0.35 < stretch.min() < 0.6
    assert 0.6 < stretch.mean() < 0.85


def test_brightness_jitter_has_the_range_it_says():
    gray = torch.full((500, 3, 4, 4), 100, dtype=torch.uint8)
    # Contrast and saturation leave a uniform gray unchanged.
    views = raw(augment(gray, **(NOTHING | {"jitter": 0.4}), generator=generator()))
    factor = views[:, 0, 0, 0] / (100 / 255)
    assert 0.6 <= factor.min() < 0.62
    assert 1.38 < factor.max() <= 1.4001
