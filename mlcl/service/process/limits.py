"""Checks whether limits of the shell and the machine are too low for PyTorch or a local Ray."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

LOADED = 5 * 2**30
"""Bytes of address space that a command takes after it has loaded PyTorch and, if needed, Ray.

Measured on 2 cores by trying limits: `doctor` loads with 3.7 GiB and crashes with 3.6, by a segmentation
fault; a sweep loads with 4.3 and crashes with 3.7. The remaining bytes are for the threads of further cores.
"""
ADDRESSES = 32 * 2**30
"""Bytes of address space that suffice for Ray and PyTorch, which reserve far more than they use."""
CURE = "`ulimit -v unlimited` raises it, in a new shell where this one may not"
SIGNS = ("can't allocate memory", "failed to map segment")
"""Words in the errors of PyTorch (RuntimeError) and the linker (OSError) when address space runs out."""
MAX_PROBLEM = 200
"""The largest number of characters of such an error that a message shows."""
FILES = 1024
"""The number of open files that Ray's processes need."""
STORE = 0.3
"""The size of Ray's object store as a fraction of free memory; each process of Ray maps it."""
SHARED = 100 * 2**20
"""The number of free bytes of /dev/shm that Ray's object store needs."""
SHM = Path("/dev/shm")
TRAINING = 2**30
"""Bytes of memory for one training. In a sweep of small networks, a training had 1.2 GiB resident memory,
of which it shared all but 0.75 GiB with other processes."""
RAY_ALONE = 350 * 2**20
"""Bytes of memory of Ray's own processes: the sum of their unshared memory, psutil's `uss`."""
OWN_GROUP, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
"""The file with the control group of this process, and the root of the tree of groups (version 2)."""


def narrow_limits() -> list[str]:
    """Increases a low limit of open files; returns a message for each limit that stays too low for Ray."""
    addresses = max(ADDRESSES, _ray_address_space())
    messages = (
        _raise_file_limit(),
        _address_problem(addresses),
        _shared_memory_problem(),
        _memory_problem("a training", TRAINING),
    )
    return [limit for limit in messages if limit]


def hopeless_limits() -> list[str]:
    """Returns a message for each limit that keeps Ray from starting, so that it would hang or crash."""
    return [
        limit
        for limit in (_address_problem(_ray_address_space()), _memory_problem("Ray alone", RAY_ALONE))
        if limit
    ]


def too_few_addresses(error: BaseException) -> str:
    """Returns a message if a low `ulimit -v` is set and probably caused the error, else an empty text."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    problem = " ".join(str(error).split())[:MAX_PROBLEM] or "out of memory"
    out_of_memory = getattr(error, "errno", None) == errno.ENOMEM or any(sign in problem for sign in SIGNS)
    if limit == resource.RLIM_INFINITY or not (out_of_memory or isinstance(error, ImportError | MemoryError)):
        return ""
    return f"`ulimit -v` is {limit / 2**30:.1f} GiB ({problem}); {CURE}"


def free_memory() -> int:
    """Returns the bytes of memory, without swap, that machine and control groups (version 2) leave free."""
    return min([psutil.virtual_memory().available, *_free_group_memory()])


def usable_cpus() -> int:
    """Returns the CPUs that this process's affinity and its control groups' quotas allow, at least one."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([affinity, *_cpu_quotas()])))


def _cpu_quotas() -> Iterator[float]:
    """Yields the number of CPUs in the quota of this process's control group and of its parents."""
    for folder in _control_groups():
        try:
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            yield quota / period
        except (OSError, ValueError):
            continue  # no such group, or the quota is "max"


def _free_group_memory() -> Iterator[int]:
    """Yields the free bytes within the memory limit of this process's control group and of its parents."""
    for folder in _control_groups():
        try:
            limit, usage = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            # The kernel gives up cached files first.
            yield limit - usage + int(stat["active_file"]) + int(stat["inactive_file"])
        except (OSError, ValueError, KeyError):
            continue  # no such group, or the limit is "max"


def _control_groups() -> Iterator[Path]:
    try:
        lines = OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for path in (line.removeprefix("0::/") for line in lines if line.startswith("0::/")):
        # In a container the path may be that on the host: then only the root exists here.
        for folder in (GROUPS / path, *(GROUPS / path).parents):
            if not folder.is_relative_to(GROUPS):
                break
            yield folder


def _ray_address_space() -> int:
    return LOADED + int(STORE * free_memory())


def _raise_file_limit() -> str:
    files, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < FILES:
        files = hard_limit if hard_limit != resource.RLIM_INFINITY else FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard_limit))
    return f"`ulimit -n` is {files}, and Ray needs {FILES} open files" if files < FILES else ""


def _address_problem(need: int) -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= need:
        return ""
    size = f"`ulimit -v` is {limit / 2**30:.1f} GiB"
    return f"{size}, and Ray reserves up to {need / 2**30:.0f} GiB of addresses; {CURE}"


def _shared_memory_problem() -> str:
    if not SHM.is_dir() or (free_bytes := shutil.disk_usage(SHM).free) >= SHARED:
        return ""
    return f"{SHM} has {free_bytes / 2**20:.0f} MiB free, and Ray's store takes {SHARED / 2**20:.0f} MiB"


def _memory_problem(consumer: str, need: int) -> str:
    free_bytes = free_memory()
    if free_bytes >= need:
        return ""
    return f"{free_bytes / 2**20:.0f} MiB of memory are free, and {consumer} takes {need / 2**20:.0f} MiB"
