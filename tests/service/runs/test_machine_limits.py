"""Limits that are too small for Ray."""

import resource
from collections import namedtuple

import pytest

from mlcl.errors import MachineError
from mlcl.service.runs import local_ray, machine_limits
from mlcl.service.runs.machine_limits import hopeless_limits, narrow_limits

GIB = 2**30
NONE = resource.RLIM_INFINITY


@pytest.fixture
def machine(monkeypatch):
    """Its limits by name, `shm` and `memory` in bytes; and what was set."""
    limits = {
        resource.RLIMIT_NOFILE: (256, 4096),
        resource.RLIMIT_AS: (NONE, NONE),
        "shm": GIB,
        "memory": 20 * GIB,
    }
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    monkeypatch.setattr(machine_limits.shutil, "disk_usage", lambda _: usage(limits["shm"]))
    monkeypatch.setattr(machine_limits, "free_memory", lambda: limits["memory"])
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


def test_little_memory_is_named_and_none_is_hopeless(machine):
    machine["memory"] = 900 * 2**20
    assert narrow_limits() == ["900 MiB of memory are free, and a training takes 1024 MiB"]
    assert hopeless_limits() == []
    machine["memory"] = 100 * 2**20
    assert hopeless_limits() == ["100 MiB of memory are free, and Ray alone takes 350 MiB"]


def test_addresses_that_do_not_hold_the_store_are_hopeless(machine):
    machine[resource.RLIMIT_AS] = (12 * GIB, NONE)
    assert hopeless_limits() == []
    machine["memory"] = 40 * GIB
    assert hopeless_limits()[0].startswith("`ulimit -v` is 12.0 GiB, and Ray reserves up to 17 GiB")


def test_ray_is_not_started_where_it_is_hopeless(monkeypatch):
    monkeypatch.setattr(local_ray, "hopeless_limits", lambda: ["a", "b"])
    monkeypatch.setattr(local_ray, "_init", lambda *_: pytest.fail("started"))
    with pytest.raises(MachineError, match=r"^Ray cannot start: a; b$"), local_ray.local_ray(1, print):
        pass
