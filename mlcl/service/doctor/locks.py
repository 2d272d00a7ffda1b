"""The locks of runs, sweeps, tables and logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mlcl import files
from mlcl.files import locked
from mlcl.store import KINDS, LOCK, RunFolder
from mlcl.tracking.cursor import LOCK as DELIVERY_LOCK
from mlcl.tracking.jsonl import first_entry
from mlcl.tracking.log import LOG, log_folder


def is_locked(*locks: Path) -> bool:
    """Whether a process holds one of the locks. Looking creates no file."""
    return any(map(files.is_locked, locks))


@contextmanager
def hold_locks(*locks: Path) -> Iterator[bool]:
    """Holds the locks of existing folders while the context is open; yields False where one is taken."""
    with ExitStack() as stack:
        there = dict.fromkeys(lock for lock in locks if lock.parent.is_dir())  # each once
        yield all(stack.enter_context(locked(lock)) for lock in there)


def all_folders(home: Path) -> list[RunFolder]:
    """The folders of runs, sweeps and tables, also of those without a record."""
    return [RunFolder(path) for kind in KINDS for path in sorted((home / kind).glob("*/"))]


def log_locks(home: Path, id: str) -> list[Path]:
    """The locks of the processes that write or deliver a log; of all that may begin it where none has."""
    owner = first_entry(log_folder(home, id) / LOG).get("owner")
    paths = [folder.path for folder in all_folders(home) if owner in (None, folder.path.name)]
    return [log_folder(home, id) / DELIVERY_LOCK, *(path / LOCK for path in paths)]
