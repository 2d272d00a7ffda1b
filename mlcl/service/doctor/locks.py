"""Who holds what. Looking at a lock leaves no file behind."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mlcl.service.runs.run_store import RunFolder, RunFolders
from mlcl.tracking.atomic_files import locked
from mlcl.tracking.cursor import LOCK as DELIVERY_LOCK
from mlcl.tracking.jsonl import decode, read_lines
from mlcl.tracking.log import LOG, log_folder

KINDS = ("runs", "sweeps", "tables")
FOLDER_LOCK = ".lock"
"""Held by the process whose run, sweep or training a folder is."""


def held(*locks: Path) -> bool:
    """Whether a process holds one of the lock files."""
    return any(_held(lock) for lock in locks)


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            # Shared is enough to tell, and does not turn away another one who looks.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def holding(*locks: Path) -> Iterator[bool]:
    """Holds all the locks while inside, of folders that are there; yields False where one is taken."""
    with ExitStack() as stack:
        there = dict.fromkeys(lock for lock in locks if lock.parent.is_dir())  # each once
        yield all(stack.enter_context(locked(lock)) for lock in there)


def folder_locks(home: Path, ids: Iterable[str]) -> list[Path]:
    """The locks of the runs and sweeps with these ids, as far as there are any."""
    folders = [home / kind / id for id in ids for kind in KINDS]
    return [folder / FOLDER_LOCK for folder in folders if folder.is_dir()]


def log_locks(home: Path, id: str) -> list[Path]:
    """What those hold who write or deliver a log."""
    return [log_folder(home, id) / DELIVERY_LOCK, *folder_locks(home, _owners(home, id))]


def _owners(home: Path, id: str) -> set[str]:
    """Who answers for a log. One without a first line is named after its owner: ID, ID-2, ID.KEY."""
    for line, _ in read_lines(log_folder(home, id) / LOG):
        return {str(decode(line).get("owner", ""))} - {""}
    return {id, id.partition(".")[0], id.rpartition("-")[0]} - {""}


def free_folders(home: Path) -> Iterator[RunFolder]:
    """The folders of runs and sweeps that no process holds, whether or not their record can be read."""
    for kind in KINDS:
        for path in sorted(RunFolders(home, kind).root.glob("*")):
            if path.is_dir() and not held(path / FOLDER_LOCK):
                yield RunFolder(path)
