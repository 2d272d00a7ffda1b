"""The cursor of a log: how much of it has been delivered, in a file beside the log."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from mlcl.files import is_locked, replace_text
from mlcl.tracking.jsonl import first_entry, read_lines
from mlcl.tracking.log import LOG, log_folder
from mlcl.tracking.uri import stored_uri

CURSOR = "cursor.json"
LOCK = "delivery.lock"
"""Held by the one process that delivers the log."""


@dataclass
class Cursor:
    """The part of a log that is in MLflow.

    `offset`: bytes of the log that were delivered. `ended`: they end with a final state. `run_id`: the run,
    of `experiment_id`. `creating`: a request to create the run was sent and its answer is unknown. `twice`:
    two such requests were sent, so that there may be two runs. `undeliverable`: why MLflow refused the rest,
    or empty.
    """

    offset: int = 0
    ended: bool = False
    run_id: str | None = None
    creating: bool = False
    twice: bool = False
    undeliverable: str = ""
    experiment_id: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The cursor in a log's folder; a new one where there is none."""
        try:
            return cls(**json.loads((folder / CURSOR).read_text()))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError):
            return cls(creating=True)  # a damaged file may have named a run

    def write(self, folder: Path) -> None:
        """Writes the cursor to its file in a log's folder, atomically."""
        replace_text(folder / CURSOR, json.dumps(asdict(self)) + "\n")


@dataclass(frozen=True)
class UndeliveredLog:
    """A log and the number of its undelivered `entries`; `uri` is the store that it is for.

    `refusal` says why MLflow refused them, or is empty; `locked`: a process is delivering it.
    """

    id: str
    entries: int
    uri: str
    refusal: str
    locked: bool


def undelivered_logs(home: Path, uri: str | None = None) -> list[UndeliveredLog]:
    """The undelivered logs under `home`, of one store or of all, ordered by id."""
    found = []
    for folder in sorted(path for path in (home / "logs").glob("*") if path.is_dir()):
        cursor = Cursor.read(folder)
        if entries := pending_entries(folder, cursor):
            store, refusal = str(first_entry(folder / LOG).get("uri")), cursor.undeliverable
            found.append(UndeliveredLog(folder.name, entries, store, refusal, is_locked(folder / LOCK)))
    return [log for log in found if uri is None or log.uri == stored_uri(uri, home)]


def delivered_logs(home: Path, uri: str) -> list[str]:
    """The ids of the logs under `home` that have a run in this store, as far as the cursors know."""
    present = stored_uri(uri, home)
    folders = (path for path in sorted((home / "logs").glob("*")) if Cursor.read(path).run_id is not None)
    return [path.name for path in folders if first_entry(path / LOG).get("uri") == present]


def pending_entries(folder: Path, cursor: Cursor) -> int:
    """The number of entries behind the cursor."""
    log = folder / LOG
    if not log.exists() or log.stat().st_size <= cursor.offset:
        return 0
    return sum(1 for _ in read_lines(log, cursor.offset))


def is_usable(home: Path, id: str, uri: str) -> bool:
    """Whether a log may be started or continued: it is new or for this store, which has not refused it."""
    folder, present = log_folder(home, id), stored_uri(uri, home)
    return first_entry(folder / LOG).get("uri", present) == present and not Cursor.read(folder).undeliverable


def run_id_of(home: Path, id: str) -> str | None:
    """The id of a log's run in MLflow; None where the run has not been created yet."""
    return Cursor.read(log_folder(home, id)).run_id
