"""The limit of addresses (`ulimit -v`) that libraries do not load with. This module loads none itself."""

from __future__ import annotations

import errno
import resource
import sys
from importlib.abc import MetaPathFinder

from mlcl.errors import MachineError

LOADED = 5 * 2**30
"""Bytes of addresses of a command that has loaded PyTorch, and Ray where it needs it.

Measured on 2 cores by trying limits: `doctor` loads with 3.7 GiB and breaks off with 3.6, by a segmentation
fault; a sweep loads with 4.3 and breaks off with 3.7. The rest is for the threads of further cores.
"""
NEEDED = {"torch": LOADED, "numpy": 2**29}
"""Bytes of addresses by library. `compare` has 0.35 GiB; OpenBLAS aborts the process where it gets none."""
SIGNS = ("can't allocate memory", "failed to map segment")
"""What PyTorch says in a RuntimeError, and the linker in an OSError."""
MAX_PROBLEM = 200
"""Characters of an error that its line has."""
CURE = "`ulimit -v unlimited` raises it, in a new shell where this one may not"


def address_limit() -> int | None:
    """Bytes of addresses that this process may have; None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def guard_imports() -> None:
    """From now on, importing a library raises MachineError where the limit is below what it needs."""
    sys.meta_path.insert(0, _Guard())


def too_few_addresses(error: BaseException) -> str:
    """What to say of an error that the limit explains; empty where there is no limit, or for other errors."""
    limit = address_limit()
    what = " ".join(str(error).split())[:MAX_PROBLEM] or "out of memory"
    said = getattr(error, "errno", None) == errno.ENOMEM or any(sign in what for sign in SIGNS)
    if limit is None or not (said or isinstance(error, ImportError | MemoryError)):
        return ""
    return f"`ulimit -v` is {limit / 2**30:.1f} GiB ({what}); {CURE}"


class _Guard(MetaPathFinder):
    """Finds no module: it is asked first, whichever command imports the library, and wherever."""

    def find_spec(self, name: str, *_: object) -> None:
        if (need := NEEDED.get(name)) is None:
            return
        limit = address_limit()
        if limit is not None and limit < need:
            size = f"`ulimit -v` is {limit / 2**30:.1f} GiB"
            raise MachineError(f"{size}, and {name} needs {need / 2**30:.1f} GiB of addresses; {CURE}")
