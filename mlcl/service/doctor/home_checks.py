"""Checks of a home: its disk, its database, killed runs, and files that killed processes left."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path

from mlcl.backports import SqliteCode, sqlite_code
from mlcl.errors import UserError
from mlcl.files import is_locked, lock_file, new_file
from mlcl.service.doctor.checks import Finding, Scope
from mlcl.service.engine.closing import recover
from mlcl.service.process.signals import STOP_FILE
from mlcl.store import BACKUP, DATABASE, IMPORTING, KINDS, LOCK, Database, RunFolder, State
from mlcl.tracking.cursor import LOCK as DELIVERY_LOCK
from mlcl.tracking.log import LOG, first_entry, log_folder
from mlcl.tracking.uri import sqlite_file

LEAST_BYTES, LEAST_SHARE = 2**30, 0.05
"""A disk counts as nearly full if fewer bytes, or a smaller fraction of it, are free."""
DAMAGED = "home.db.damaged"
MADE = ("data", "models", "reports", "cache/*")
"""Patterns of the home's folders with data sets, exported models, reports and cached data.

The lock file of an entry NAME is `.NAME.lock` beside it.
"""


def find_full_disk(scope: Scope) -> Iterator[Finding]:
    """Yields a finding if the disk of the home is nearly full."""
    folder = _nearest_folder(scope.home.resolve())
    usage = shutil.disk_usage(folder)
    if usage.free < LEAST_BYTES or usage.free < LEAST_SHARE * usage.total:
        free_space = f"{usage.free / 2**30:.1f} GiB ({usage.free / usage.total:.0%})"
        yield Finding(str(folder), f"its disk is nearly full: {free_space} are free", "make room")


def find_unusable_store(scope: Scope) -> Iterator[Finding]:
    """Yields a finding if the home, or the file of MLflow's SQLite store, cannot be written."""
    folder, file = _nearest_folder(scope.home.resolve()), sqlite_file(scope.uri)
    if not os.access(folder, os.W_OK):
        cure = "give this user the right to write, or another --home"
        yield Finding(str(folder), "cannot be written", cure)
    if file is not None and file.exists() and (reason := _write_error(file)):
        problem = f"MLflow's store cannot be written ({reason})"
        yield Finding(str(file), problem, "mend its rights, or restore it")


def _write_error(file: Path) -> str:
    """Returns why the SQLite file cannot be written; empty if it can be, or if it is locked."""
    try:
        with closing(
            sqlite3.connect(f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=0)
        ) as connection:
            connection.execute("PRAGMA schema_version")
            connection.execute("BEGIN IMMEDIATE")  # checks the right to write without writing
            connection.rollback()
    except sqlite3.Error as error:
        return "" if sqlite_code(error) == SqliteCode.BUSY else str(error)
    return ""


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def find_damaged_database(scope: Scope) -> Iterator[Finding]:
    """Yields a finding if the database of the home is damaged or missing."""
    database = Database(scope.home)
    try:
        database.check()
    except UserError as error:
        problem = error.problem + (f": {error.found}" if error.found is not None else "")
        cure, mend = f"replaced by {BACKUP}, of the end of the last command; the damaged file is kept", None
        if error.key == "user_version":
            cure = str(error.allowed)
        elif (scope.home / BACKUP).exists():
            mend = partial(_restore_backup, scope.home)
        else:
            cure = "restore a copy, or move the home away and begin anew; the results in MLflow stay"
        yield Finding(str(database.file), problem, cure, mend)


def _restore_backup(home: Path) -> None:
    """Replaces the database by its backup; keeps each damaged file. Raises UserError while a command runs."""
    if any(folder.is_owned for folder in all_folders(home)):
        raise UserError("a command is running in this home", file=home)
    if (home / DATABASE).exists():
        names = chain([DAMAGED], (f"{DAMAGED}-{number}" for number in count(2)))
        (home / DATABASE).replace(next(home / name for name in names if not (home / name).exists()))
    # SQLite would write the pages of a journal that a killed transaction left into the backup.
    (home / f"{DATABASE}-journal").unlink(missing_ok=True)
    with new_file(home / DATABASE) as partial_file:
        partial_file.write_bytes((home / BACKUP).read_bytes())
    Database(home).check()


def find_dead_runs(scope: Scope) -> Iterator[Finding]:
    """Yields RUNNING runs, sweeps and tables whose folder no process locks; one repair sets all STOPPED."""
    mend = partial(recover, scope.home)
    try:
        records = [(folder, folder.record) for folder in all_folders(scope.home) if not folder.is_owned]
    except UserError:
        return  # `find_damaged_database` reports that the database is damaged
    for folder, record in records:
        if record is not None and record.state is State.RUNNING:
            name = f"{record.kind.removesuffix('s')} {record.name}".strip()
            problem = f"the {name} is RUNNING, but no process has it: it was killed"
            yield Finding(str(folder.path), problem, "set to STOPPED; the same command goes on with it", mend)


def find_partial_files(scope: Scope) -> Iterator[Finding]:
    """Yields partial files whose writing process was killed; no command reads files with such names."""
    for path, locks in _partial_files(scope.home):
        if not any_locked(*locks):
            yield _removal_finding(path, "half-written: its writer was killed", locks)


def find_stale_files(scope: Scope) -> Iterator[Finding]:
    """Yields folders of Ray Tune and stop files that killed commands left behind."""
    for folder in all_folders(scope.home):
        locks = [folder.path / LOCK]
        if any_locked(*locks):
            continue
        for path in sorted(folder.path.glob("ray-*")):
            yield _removal_finding(path, "Ray Tune's folder of a command that was killed", locks)
        for path in sorted({*folder.path.glob(STOP_FILE), *folder.path.glob(f"trials/*/{STOP_FILE}")}):
            yield _removal_finding(path, "a request to stop, of a command that was killed", locks)


def _partial_files(home: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yields all partial files, each with the lock files of the processes that may be writing it."""
    for path in sorted(path for kind in ("logs", *KINDS) for path in (home / kind).glob(".*.partial")):
        yield path, [home / IMPORTING]
    for root in (home / kind for kind in KINDS):
        for path in sorted(root.glob("*/**/.*.partial")):
            parents = [parent for parent in path.parents if root in parent.parents]
            yield path, [folder / LOCK for folder in parents if folder.parent.name in (*KINDS, "trials")]
    for path in sorted((home / "logs").glob("*/**/.*.partial")):
        yield path, log_locks(home, path.relative_to(home / "logs").parts[0])
    for path in sorted(path for name in MADE for path in home.glob(f"{name}/.*.partial")):
        yield path, [path.with_name(f"{path.name.rsplit('.', 2)[0]}.lock")]


def _removal_finding(path: Path, problem: str, locks: list[Path]) -> Finding:
    return Finding(str(path), problem, "removed", partial(_remove_unlocked, path, locks))


def _remove_unlocked(path: Path, locks: list[Path]) -> None:
    with hold_locks(*locks) as locked:
        if not locked:
            return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def any_locked(*locks: Path) -> bool:
    """Whether a process holds one of the locks. Does not create lock files."""
    return any(map(is_locked, locks))


@contextmanager
def hold_locks(*locks: Path) -> Iterator[bool]:
    """Holds locks while the context is open; yields whether all were free. Skips those in missing folders."""
    with ExitStack() as stack:
        existing_locks = dict.fromkeys(lock for lock in locks if lock.parent.is_dir())  # each once
        yield all(stack.enter_context(lock_file(lock)) for lock in existing_locks)


def all_folders(home: Path) -> list[RunFolder]:
    """Returns the folders of all runs, sweeps and tables, including those without a record."""
    paths = [path for kind in KINDS for path in sorted((home / kind).glob("*"))]
    return [RunFolder(path) for path in paths if path.is_dir()]


def log_locks(home: Path, id: str) -> list[Path]:
    """Returns the lock files of a log's delivery and owner, or of all folders if the log names no owner."""
    owner = first_entry(log_folder(home, id) / LOG).get("owner")
    paths = [folder.path for folder in all_folders(home) if owner in (None, folder.path.name)]
    return [log_folder(home, id) / DELIVERY_LOCK, *(path / LOCK for path in paths)]
