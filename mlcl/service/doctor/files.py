"""Checks of disk space, rights and limits, and of files that a killed process left."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.locks import free_folders, hold_locks, is_locked, log_locks
from mlcl.service.engine.stop_conditions import STOP_FILE
from mlcl.service.process.limits import narrow_limits
from mlcl.store import KINDS, LOCK
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
    """Limits of the shell and the machine, free memory among them, that Ray does not work with."""
    for limit in narrow_limits():
        yield Finding("this machine", limit, "raise it, or make room, before a sweep, a table or `mlcl up`")


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


MADE = ("data", "models", "reports", "cache/features")
"""Folders with data sets, exported models, reports and frozen inputs; their locks are beside them."""


def find_partial_files(scope: Scope) -> Iterator[Finding]:
    """Partial files without a living writer. They have no final name, so that no command reads them."""
    for path, locks in _partial_files(scope.home):
        if not is_locked(*locks):
            yield _removable(path, "half-written: its writer was killed", locks)


def find_stale_files(scope: Scope) -> Iterator[Finding]:
    """Ray's folders and requests to stop, of commands that were killed."""
    for folder in free_folders(scope.home):
        locks = [folder.path / LOCK]
        for path in sorted(folder.path.glob("ray-*")):
            yield _removable(path, "Ray Tune's folder of a command that was killed", locks)
        for path in sorted({*folder.path.glob(STOP_FILE), *folder.path.glob(f"trials/*/{STOP_FILE}")}):
            yield _removable(path, "a request to stop, of a command that was killed", locks)


def _partial_files(home: Path) -> Iterator[tuple[Path, list[Path]]]:
    """All partial files, each with the locks of its possible writers."""
    for kind in KINDS:
        for path in sorted((home / kind).glob("*/**/.*.partial")):
            yield path, _folder_locks(home / kind, path)
    for path in sorted((home / "logs").glob("*/**/.*.partial")):
        yield path, log_locks(home, path.relative_to(home / "logs").parts[0])
    for path in sorted(path for kind in MADE for path in (home / kind).glob(".*.partial")):
        name = path.name.rsplit(".", 2)[0]
        yield path, [path.with_name(f"{name}.lock")]


def _folder_locks(root: Path, path: Path) -> list[Path]:
    """The locks of the run, sweep and training that a file belongs to."""
    inside = [parent for parent in path.parents if root in parent.parents]
    return [folder / LOCK for folder in inside if folder.parent.name in (*KINDS, "trials")]


def _removable(path: Path, why: str, locks: list[Path]) -> Finding:
    return Finding(str(path), why, "removed", partial(_remove, path, locks))


def _remove(path: Path, locks: list[Path]) -> None:
    with hold_locks(*locks) as mine:
        if not mine:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
