import pytest

from mlcl.losses import tiling
from mlcl.testing.loss_batches import loss_batch


@pytest.fixture
def small_tiles(monkeypatch):
    """Sets tiles of four rows, so that a small batch has inner, outer and partial tiles."""
    monkeypatch.setattr(tiling, "TILE", 4)
    monkeypatch.setattr(tiling, "DEVICE_TILE", 4)


@pytest.fixture
def rows():
    return loss_batch()


@pytest.fixture
def make():
    return loss_batch


@pytest.fixture(scope="module")
def module_rows():
    return loss_batch()
