"""Limits of this process and machine that Ray does not work with, and that it says nothing clear about."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

FILES = 1024
"""Open files that Ray's processes need."""
ADDRESSES = 32 * 2**30
"""Bytes of addresses: Ray and PyTorch reserve far more than they use."""
SHARED = 100 * 2**20
"""Free bytes of /dev/shm for Ray's object store."""
SHM = Path("/dev/shm")


def narrow_limits() -> list[str]:
    """Every limit that is too small, with the command that shows it. Raises open files as far as allowed."""
    found = []
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < FILES:
        files = most if most != resource.RLIM_INFINITY else FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    if files < FILES:
        found.append(f"`ulimit -n` is {files}, and Ray needs {FILES} open files")
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < ADDRESSES:
        size, need = f"{addresses / 2**30:.1f} GiB", f"{ADDRESSES / 2**30:.0f} GiB"
        found.append(f"`ulimit -v` is {size}, and Ray reserves up to {need} of addresses")
    if SHM.is_dir() and (free := shutil.disk_usage(SHM).free) < SHARED:
        found.append(f"{SHM} has {free / 2**20:.0f} MiB free, and Ray's store takes {SHARED / 2**20:.0f} MiB")
    return found
