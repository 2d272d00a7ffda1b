"""Ends a process after its exit handlers, without Python's clean-up of every module and object.

That clean-up takes two seconds once PyTorch is loaded, and frees what the system frees anyway.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from functools import cache

_statuses: list[int] = []


def run(main: Callable[[], None]) -> None:
    """Runs `main`, and lets the process end with its status as soon as the exit handlers have run.

    Where `main` raises, or ends with a message in place of a number, Python ends the process as always.
    """
    register()
    try:
        main()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            _statuses.append(error.code or 0)
        raise
    _statuses.append(0)


@cache
def register() -> None:
    """Registers the end of the process. It comes after all exit handlers that are registered later."""
    atexit.register(_end)


def _end() -> None:
    if not _statuses:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # a closed pipe: Python has its own words and status for it
    os._exit(_statuses[-1])
