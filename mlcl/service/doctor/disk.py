"""Room and rights to write."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.network import sqlite_file

LEAST_BYTES, LEAST_SHARE = 2**30, 0.05
"""Free room below either of which a disk counts as nearly full."""


def find_full_disk(scope: Scope) -> Iterator[Finding]:
    """Checkpoints and logs need room."""
    place = _existing(scope.home.resolve())
    usage = shutil.disk_usage(place)
    if usage.free < LEAST_BYTES or usage.free < LEAST_SHARE * usage.total:
        free = f"{usage.free / 2**30:.1f} GiB ({usage.free / usage.total:.0%})"
        yield Finding(str(place), f"its disk is nearly full: {free} are free", "make room")


def find_unusable_store(scope: Scope) -> Iterator[Finding]:
    """The home, and MLflow's file where the store is one."""
    place = _existing(scope.home.resolve())
    if not os.access(place, os.W_OK):
        yield Finding(str(place), "cannot be written", "give this user the right to write, or another --home")
    path = sqlite_file(scope.uri)
    reason = "" if path is None else _unusable(path)
    if reason:
        why = f"MLflow's store cannot be written ({reason})"
        yield Finding(str(path), why, "mend its rights, or restore it")


def _unusable(path: Path) -> str:
    """Why the SQLite file takes no write; empty where it does, is busy, or is not there yet."""
    if not path.exists():
        return ""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=0)
        try:
            connection.execute("PRAGMA schema_version")
            connection.execute("BEGIN IMMEDIATE")  # asks for the right to write, and writes nothing
            connection.rollback()
        finally:
            connection.close()
    except sqlite3.Error as error:
        busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
        return "" if busy else str(error)
    return ""


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
