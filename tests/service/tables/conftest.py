import pytest
from reproduced import Tables


@pytest.fixture
def world(tiny, tmp_path, monkeypatch):
    """Makes homes by name, all with the same table. The last one made is the one that trains."""
    return lambda name: Tables(tmp_path / name, monkeypatch, tiny)


@pytest.fixture
def tables(world):
    """A home with a table of two cells and two seeds."""
    return world("home")
