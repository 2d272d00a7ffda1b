"""Limits of the shell and the machine that a local Ray does not work with."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

from mlcl.service.runs.address_limit import CURE, LOADED, address_limit
from mlcl.service.runs.free_memory import free_memory

FILES = 1024
"""Open files that Ray's processes need."""
ADDRESSES = 32 * 2**30
"""Bytes of addresses that are enough for Ray and PyTorch, which reserve far more than they use."""
STORE = 0.3
"""The share of free memory for whose addresses each process of Ray maps the object store."""
SHARED = 100 * 2**20
"""Free bytes of /dev/shm for Ray's object store."""
SHM = Path("/dev/shm")
TRAINING = 2**30
"""Bytes of memory of one training. In a sweep of small networks one had 0.75 GiB of its own, 1.2 resident."""
RAY_ALONE = 350 * 2**20
"""Bytes of memory of Ray's own processes: the sum of what each shares with no other, as psutil's `uss`."""


def narrow_limits() -> list[str]:
    """Every limit that is too small, with the command that shows it. Raises open files as far as allowed."""
    addresses = max(ADDRESSES, _ray_addresses())
    return [
        limit
        for limit in (_files(), _addresses(addresses), _shared(), _memory("a training", TRAINING))
        if limit
    ]


def hopeless_limits() -> list[str]:
    """The limits with which Ray starts no training: it hangs, or ends the process without a word."""
    return [limit for limit in (_addresses(_ray_addresses()), _memory("Ray alone", RAY_ALONE)) if limit]


def _ray_addresses() -> int:
    return LOADED + int(STORE * free_memory())


def _files() -> str:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < FILES:
        files = most if most != resource.RLIM_INFINITY else FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return f"`ulimit -n` is {files}, and Ray needs {FILES} open files" if files < FILES else ""


def _addresses(need: int) -> str:
    limit = address_limit()
    if limit is None or limit >= need:
        return ""
    size = f"`ulimit -v` is {limit / 2**30:.1f} GiB"
    return f"{size}, and Ray reserves up to {need / 2**30:.0f} GiB of addresses; {CURE}"


def _shared() -> str:
    if not SHM.is_dir() or (free := shutil.disk_usage(SHM).free) >= SHARED:
        return ""
    return f"{SHM} has {free / 2**20:.0f} MiB free, and Ray's store takes {SHARED / 2**20:.0f} MiB"


def _memory(whose: str, need: int) -> str:
    free = free_memory()
    if free >= need:
        return ""
    return f"{free / 2**20:.0f} MiB of memory are free, and {whose} takes {need / 2**20:.0f} MiB"
