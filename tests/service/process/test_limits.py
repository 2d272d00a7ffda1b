"""Tests of limits of shell and machine that are too low for Ray, and of the free memory and CPUs."""

import resource
from collections import namedtuple
from types import SimpleNamespace

import pytest

from mlcl.errors import MachineError
from mlcl.service.process import limits
from mlcl.service.process.limits import free_memory, hopeless_limits, narrow_limits, usable_cpus
from mlcl.service.ray import session

GIB = 2**30
NONE = resource.RLIM_INFINITY


@pytest.fixture
def machine(monkeypatch):
    """Replaces the machine's limits, and returns them by name, with `shm` and `memory` in bytes."""
    machine_limits = {
        resource.RLIMIT_NOFILE: (256, 4096),
        resource.RLIMIT_AS: (NONE, NONE),
        "shm": GIB,
        "memory": 20 * GIB,
    }
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(resource, "getrlimit", machine_limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", machine_limits.__setitem__)
    monkeypatch.setattr(limits.shutil, "disk_usage", lambda _: usage(machine_limits["shm"]))
    monkeypatch.setattr(limits, "free_memory", lambda: machine_limits["memory"])
    return machine_limits


def test_open_files_are_raised_as_far_as_allowed(machine):
    assert narrow_limits() == []
    assert machine[resource.RLIMIT_NOFILE] == (4096, 4096)
    machine[resource.RLIMIT_NOFILE] = (256, 256)
    assert narrow_limits() == ["`ulimit -n` is 256, and Ray needs 1024 open files"]


@pytest.mark.parametrize(
    ("found", "narrow", "hopeless"),
    [
        ({resource.RLIMIT_AS: (4 * GIB, NONE), "shm": 2**20},
         ["`ulimit -v` is 4.0 GiB", "/dev/shm has 1 MiB free"], ["`ulimit -v` is 4.0 GiB"]),
        ({"memory": 900 * 2**20}, ["900 MiB of memory are free, and a training takes 1024 MiB"], []),
        ({"memory": 100 * 2**20}, ["100 MiB of memory are free, and a training takes 1024 MiB"],
         ["100 MiB of memory are free, and Ray alone takes 350 MiB"]),
        # These limits on addresses leave no room for the object store, whose size depends on the free memory.
        ({resource.RLIMIT_AS: (12 * GIB, NONE)}, ["`ulimit -v` is 12.0 GiB"], []),
        ({resource.RLIMIT_AS: (12 * GIB, NONE), "memory": 40 * GIB}, ["`ulimit -v` is 12.0 GiB"],
         ["`ulimit -v` is 12.0 GiB, and Ray reserves up to 17 GiB"]),
    ],
)  # fmt: skip
def test_low_limits_are_named_and_some_are_hopeless(machine, found, narrow, hopeless):
    machine |= found
    for limits_of, words in ((narrow_limits, narrow), (hopeless_limits, hopeless)):
        messages = limits_of()
        assert [message[: len(word)] for message, word in zip(messages, words, strict=True)] == words


def test_ray_is_not_started_where_it_is_hopeless(monkeypatch):
    monkeypatch.setattr(session, "hopeless_limits", lambda: ["a", "b"])
    monkeypatch.setattr(session, "_start_ray", lambda *_: pytest.fail("started"))
    with pytest.raises(MachineError, match=r"^Ray cannot start: a; b$"), session.local_ray(1, print):
        pass


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Returns a function that writes the files of a control group; this process is in /a/b."""
    available = namedtuple("memory", "available")(10_000)
    monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: available)
    monkeypatch.setattr(limits, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(limits, "OWN_GROUP", tmp_path / "own")

    def write(path, limit, process_group="/a/b"):
        (tmp_path / "own").write_text(f"0::{process_group}\n")
        folder = tmp_path / "groups" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text("500\n")
        (folder / "memory.stat").write_text("active_file 100\ninactive_file 200\nanon 7\n")

    return write


@pytest.mark.parametrize(
    ("groups", "own", "left"),
    [
        ({}, "/a/b", 10_000),
        ({"a/b": "max"}, "/a/b", 10_000),
        ({"a/b": 9_000}, "/a/b", 8_800),
        ({"a/b": 9_000, "a": 3_000}, "/a/b", 2_800),
        ({"": 2_000}, "/path/of/the/host", 1_800),  # a process in a container
    ],
)
def test_free_memory_is_the_lowest_limit_without_cached_files(group, groups, own, left):
    for path, limit in groups.items():
        group(path, limit, own)
    assert free_memory() == left


@pytest.mark.parametrize(
    ("quotas", "cpus"),
    [
        ({}, 16),
        ({"a/b": "max 100000"}, 16),
        ({"a/b": "800000 100000", "a": "250000 100000"}, 2),
        ({"": "50000 100000"}, 1),  # half a CPU is rounded up to one
    ],
)
def test_cpus_are_those_of_the_affinity_and_the_lowest_quota_not_the_machines(
    group, tmp_path, monkeypatch, quotas, cpus
):
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 192)
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: range(16), raising=False)
    for path, quota in quotas.items():
        group(path, "max")
        (tmp_path / "groups" / path / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus() == cpus

    def init(num_cpus, **_):
        return SimpleNamespace(address_info={"session_dir": str(num_cpus)})

    monkeypatch.setattr(session.ray, "init", init)
    assert session._start_ray(1, None).name == str(cpus)
