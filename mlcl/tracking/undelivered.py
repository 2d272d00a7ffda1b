"""Logs with entries that MLflow does not have: their command was killed, or MLflow did not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlcl.files import locked
from mlcl.tracking.cursor import LOCK, Cursor
from mlcl.tracking.jsonl import first_entry, read_lines
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.uri import is_stored_uri, shown


@dataclass(frozen=True)
class UndeliveredLog:
    """A log and the number of its undelivered `entries`.

    `reason` says why MLflow refused them and is empty where it did not; `locked`: a process is delivering it.
    """

    id: str
    entries: int
    reason: str
    locked: bool


def undelivered(home: Path, uri: str | None = None) -> list[UndeliveredLog]:
    """The undelivered logs under `home`, of one store or of all; the oldest first."""
    found = []
    for folder in _folders(home):
        cursor = Cursor.read(folder)
        entries = pending_entries(folder, cursor)
        if entries == 0 or (uri is not None and not _is_for(home, folder, uri)):
            continue
        with locked(folder / LOCK) as free:
            found.append(UndeliveredLog(folder.name, entries, cursor.undeliverable, not free))
    return found


def pending_entries(folder: Path, cursor: Cursor) -> int:
    """The number of entries behind the cursor."""
    try:
        if (folder / LOG).stat().st_size <= cursor.offset:
            return 0
    except FileNotFoundError:
        return 0
    return sum(1 for _ in read_lines(folder / LOG, cursor.offset))


def is_usable(home: Path, id: str, uri: str) -> bool:
    """Whether a log may be started or continued: it is new or for this store, which has not refused it."""
    folder = log_folder(home, id)
    return _is_for(home, folder, uri) and not Cursor.read(folder).undeliverable


def _is_for(home: Path, folder: Path, uri: str) -> bool:
    return is_stored_uri(first_entry(folder / LOG).get("uri", shown(uri)), uri, home)


def owned_by(home: Path, owner: str) -> list[str]:
    """The ids of the logs whose state the process of this run, sweep or table sets."""
    return [folder.name for folder in _folders(home) if first_entry(folder / LOG).get("owner") == owner]


def _folders(home: Path) -> Iterator[Path]:
    return (path for path in sorted((home / "logs").glob("*")) if path.is_dir())
