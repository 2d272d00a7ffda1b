import pytest
from reproduced import Tables


@pytest.fixture
def world(tiny, tmp_path, monkeypatch):
    """Returns a function that makes homes by name, all with the same table; only the last made can train."""
    return lambda name: Tables(tmp_path / name, monkeypatch, tiny)


@pytest.fixture
def tables(world):
    """Returns a home with a table of two cells and two seeds."""
    return world("home")
