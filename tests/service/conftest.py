"""Fixtures of tests of sweeps."""

import pytest
from builders import tiny_job


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A home in which sweeps run in this process."""
    from sweeps import World  # imports Ray

    return World(tmp_path / "home", monkeypatch)


@pytest.fixture
def job(tiny):
    """A small job, on the data set `tiny`."""
    return tiny_job(tiny)
