"""Logs that MLflow does not have yet: of commands that were killed, or ended while it was away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mlcl.tracking.atomic_files import locked
from mlcl.tracking.cursor import LOCK, Cursor
from mlcl.tracking.jsonl import decode, read_lines
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.uri import shown


@dataclass(frozen=True)
class Left:
    """A log with `entries` that MLflow does not have.

    `reason` says why MLflow refuses them, empty where it was only away. `locked`: a command is at it.
    """

    id: str
    entries: int
    reason: str
    locked: bool


def undelivered(home: Path, uri: str | None = None) -> list[Left]:
    """All such logs under `home`, of one store or of all; the oldest first."""
    found = []
    for folder in _folders(home):
        cursor = Cursor.read(folder)
        entries = waiting(folder, cursor)
        if entries == 0 or (uri is not None and _start(folder).get("uri") != shown(uri)):
            continue
        with locked(folder / LOCK) as free:
            found.append(Left(folder.name, entries, cursor.undeliverable, not free))
    return found


def waiting(folder: Path, cursor: Cursor) -> int:
    """Entries behind the cursor."""
    try:
        if (folder / LOG).stat().st_size <= cursor.offset:
            return 0
    except FileNotFoundError:
        return 0
    return sum(1 for _ in read_lines(folder / LOG, cursor.offset))


def is_usable(home: Path, id: str, uri: str) -> bool:
    """Whether a log can be started or gone on with: it is for this store, which has not refused it."""
    folder = log_folder(home, id)
    return _start(folder).get("uri", shown(uri)) == shown(uri) and not Cursor.read(folder).undeliverable


def owned_by(home: Path, owner: str) -> list[str]:
    """The logs for whose states a run or sweep answers."""
    return [folder.name for folder in _folders(home) if _start(folder).get("owner") == owner]


def deliver_left(home: Path, uri: str, announce: Callable[[str], None] = lambda _: None) -> int:
    """Delivers what is left for this store, also what was refused before. Returns how many logs remain.

    Raises UserError where the store does not answer.
    """
    from mlcl.tracking.delivery import Delivery  # needs MLflow
    from mlcl.tracking.tracker import Tracker

    with Delivery(Tracker(home, uri), announce) as delivery:
        delivery.add_left(refused=True)
        delivery.drain()
    return len(undelivered(home, uri))


def run_id_of(home: Path, id: str) -> str | None:
    """The log's run in MLflow; None where there is none yet."""
    return Cursor.read(log_folder(home, id)).run_id


def _folders(home: Path) -> Iterator[Path]:
    return (path for path in sorted((home / "logs").glob("*")) if path.is_dir())


def _start(folder: Path) -> dict[str, object]:
    """The first entry."""
    for line, _ in read_lines(folder / LOG):
        return decode(line)
    return {}
