"""Limits that are too small for Ray."""

import resource
from collections import namedtuple

import pytest

from mlcl.service.runs import local_ray
from mlcl.service.runs.local_ray import narrow_limits

GIB = 2**30
NONE = resource.RLIM_INFINITY


@pytest.fixture
def machine(monkeypatch):
    """Its limits by name, `shm` in bytes; and what was set."""
    limits = {resource.RLIMIT_NOFILE: (256, 4096), resource.RLIMIT_AS: (NONE, NONE), "shm": GIB}
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(local_ray.shutil, "disk_usage", lambda _: usage(limits["shm"]))
    return limits


def test_open_files_are_raised_as_far_as_allowed(machine):
    assert narrow_limits() == []
    assert machine[resource.RLIMIT_NOFILE] == (4096, 4096)
    machine[resource.RLIMIT_NOFILE] = (256, 256)
    assert narrow_limits() == ["`ulimit -n` is 256, and Ray needs 1024 open files"]


def test_addresses_and_shared_memory_are_named(machine):
    machine |= {resource.RLIMIT_AS: (4 * GIB, NONE), "shm": 2**20}
    first, second = narrow_limits()
    assert first.startswith("`ulimit -v` is 4.0 GiB")
    assert second.startswith("/dev/shm has 1 MiB free")
