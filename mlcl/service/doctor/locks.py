"""The locks of folders and logs. Checking a lock creates no file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mlcl import files
from mlcl.files import locked
from mlcl.store import KINDS, LOCK, RunFolder
from mlcl.tracking.cursor import LOCK as DELIVERY_LOCK
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder


def is_locked(*locks: Path) -> bool:
    """Whether a process holds one of the locks."""
    return any(map(files.is_locked, locks))


@contextmanager
def hold_locks(*locks: Path) -> Iterator[bool]:
    """Holds the locks of existing folders while the context is open; yields False where one is taken."""
    with ExitStack() as stack:
        there = dict.fromkeys(lock for lock in locks if lock.parent.is_dir())  # each once
        yield all(stack.enter_context(locked(lock)) for lock in there)


def folder_locks(home: Path, ids: Iterable[str]) -> list[Path]:
    """The locks of the existing runs, sweeps and tables with these ids."""
    folders = [home / kind / id for id in ids for kind in KINDS]
    return [folder / LOCK for folder in folders if folder.is_dir()]


def log_locks(home: Path, id: str) -> list[Path]:
    """The locks of the processes that write or deliver a log."""
    return [log_folder(home, id) / DELIVERY_LOCK, *folder_locks(home, _owners(home, id))]


def _owners(home: Path, id: str) -> set[str]:
    """The owners of a log; where they cannot be read, those in its name: ID, ID-2, ID.KEY."""
    first = first_entry(log_folder(home, id) / LOG)
    if first:
        return {str(first.get("owner", ""))} - {""}
    return {id, id.partition(".")[0], id.rpartition("-")[0]} - {""}


def free_folders(home: Path) -> Iterator[RunFolder]:
    """The folders of runs, sweeps and tables that no process has locked."""
    return (folder for folder in all_folders(home) if not folder.is_owned)


def all_folders(home: Path) -> Iterator[RunFolder]:
    """The folders of runs, sweeps and tables, also of those without a record."""
    return (RunFolder(path) for kind in KINDS for path in sorted((home / kind).glob("*/")))
