"""Fixtures for the tests of sweeps."""

import pytest
from builders import tiny_job


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Returns a home in which sweeps run in this process."""
    from sweeps import World  # imported here, because it imports Ray

    return World(tmp_path / "home", monkeypatch)


@pytest.fixture
def job(tiny):
    """Returns a small job on the data set `tiny`."""
    return tiny_job(tiny)
