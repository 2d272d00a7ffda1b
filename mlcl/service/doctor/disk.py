"""Checks of free disk space, of the right to write, and of limits."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.runs.machine_limits import narrow_limits
from mlcl.tracking.uri import sqlite_file

LEAST_BYTES, LEAST_SHARE = 2**30, 0.05
"""A disk with less free space, in bytes or as a share, counts as nearly full."""


def find_full_disk(scope: Scope) -> Iterator[Finding]:
    """The disk of the home, where it is nearly full."""
    place = _existing(scope.home.resolve())
    usage = shutil.disk_usage(place)
    if usage.free < LEAST_BYTES or usage.free < LEAST_SHARE * usage.total:
        free = f"{usage.free / 2**30:.1f} GiB ({usage.free / usage.total:.0%})"
        yield Finding(str(place), f"its disk is nearly full: {free} are free", "make room")


def find_narrow_limits(_scope: Scope) -> Iterator[Finding]:
    """Limits of the shell and the machine that Ray does not work with."""
    for limit in narrow_limits():
        yield Finding("this machine", limit, "raise it before a sweep, a table or `mlcl up`")


def find_unusable_store(scope: Scope) -> Iterator[Finding]:
    """The home, and the file of an SQLite store, where they cannot be written."""
    place = _existing(scope.home.resolve())
    if not os.access(place, os.W_OK):
        yield Finding(str(place), "cannot be written", "give this user the right to write, or another --home")
    path = sqlite_file(scope.uri)
    reason = "" if path is None else _unusable(path)
    if reason:
        why = f"MLflow's store cannot be written ({reason})"
        yield Finding(str(path), why, "mend its rights, or restore it")


def _unusable(path: Path) -> str:
    """Why the SQLite file cannot be written; empty where it can, is locked, or does not exist."""
    if not path.exists():
        return ""
    try:
        uri = f"{path.resolve().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
            connection.execute("PRAGMA schema_version")
            connection.execute("BEGIN IMMEDIATE")  # checks the right to write without writing
            connection.rollback()
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        return "" if busy else str(error)
    return ""


def _existing(path: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
