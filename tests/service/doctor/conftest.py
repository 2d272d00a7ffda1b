"""Fixtures for the tests of the doctor, which run on a machine with free disk space and high limits."""

from collections import namedtuple

import pytest

from mlcl.service.doctor import home_checks, servers


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def roomy_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    usage = namedtuple("usage", "total used free")(2**40, 2**39, 2**39)
    monkeypatch.setattr(home_checks.shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(servers, "narrow_limits", list)
