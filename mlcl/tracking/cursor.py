"""The cursor of a log: a file beside the log that says how much of the log has been sent to MLflow."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from typing_extensions import Self

from mlcl.files import is_locked, replace_text
from mlcl.tracking.log import LOG, first_entry, log_folder, read_lines
from mlcl.tracking.uri import stored_uri

CURSOR = "cursor.json"
LOCK = "delivery.lock"
"""The lock file in a log's folder, held by the one process that sends the log to MLflow."""


@dataclass
class Cursor:
    """The progress of sending a log to MLflow.

    Attributes:
        offset: The number of the log's bytes that have been sent.
        ended: Whether the sent part ends with a final state.
        run_id: The id of the log's run in MLflow, None until it is created.
        creating: Whether a request to create the run was sent whose answer is not known.
        twice: Whether two such requests were sent, so that there may be two runs.
        undeliverable: Why MLflow refused the rest of the log, or single entries; empty if it did not.
        experiment_id: The id of the experiment of the log's run in MLflow.
        refused_at: The offset of the first entry that was refused while the entries after it were sent.
    """

    offset: int = 0
    ended: bool = False
    run_id: str | None = None
    creating: bool = False
    twice: bool = False
    undeliverable: str = ""
    experiment_id: str | None = None
    refused_at: int | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads the cursor from a log's folder; returns a new one if there is none."""
        try:
            return cls(**json.loads((folder / CURSOR).read_text()))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError):
            return cls(creating=True)  # the sender looks for the run that the file may have named

    @classmethod
    def of(cls, home: Path, id: str) -> Self:
        """Reads the cursor of the log `id` under a home."""
        return cls.read(log_folder(home, id))

    def write(self, folder: Path) -> None:
        """Writes the cursor to its file in a log's folder, atomically."""
        replace_text(folder / CURSOR, json.dumps(asdict(self)) + "\n")

    @property
    def unsent_offset(self) -> int:
        """The offset of the first entry that MLflow does not have."""
        return self.offset if self.refused_at is None else self.refused_at

    def refuse(self, reason: str) -> None:
        """Records that the entry at `offset` was refused. Of several refusals the first one is kept."""
        if self.refused_at is None:
            self.refused_at, self.undeliverable = self.offset, reason

    def try_again(self) -> None:
        """Moves `offset` back to the first refused entry. Sending later entries twice changes nothing."""
        self.offset, self.refused_at, self.undeliverable = self.unsent_offset, None, ""


@dataclass(frozen=True)
class UndeliveredLog:
    """A log with `entries` that the store `uri` lacks or refused; it is `locked` while a process sends it."""

    id: str
    entries: int
    uri: str
    refusal: str
    locked: bool


def _log_folders(home: Path) -> list[Path]:
    """Returns the folders of all logs; hidden folders are logs of an import that was killed."""
    return sorted(path for path in (home / "logs").glob("[!.]*") if path.is_dir())


def undelivered_logs(home: Path, uri: str | None = None) -> list[UndeliveredLog]:
    """Returns the undelivered logs under `home`, ordered by id; with `uri` only those for this store."""
    logs = []
    for folder in _log_folders(home):
        cursor = Cursor.read(folder)
        if entries := pending_entries(folder, cursor.unsent_offset):
            store, refusal = str(first_entry(folder / LOG).get("uri")), cursor.undeliverable
            logs.append(UndeliveredLog(folder.name, entries, store, refusal, is_locked(folder / LOCK)))
    return [log for log in logs if uri is None or log.uri == stored_uri(uri, home)]


def delivered_logs(home: Path, uri: str) -> list[str]:
    """Returns the ids of the logs under `home` whose cursors say that they have a run in this store."""
    store = stored_uri(uri, home)
    folders = (path for path in _log_folders(home) if Cursor.read(path).run_id is not None)
    return [path.name for path in folders if first_entry(path / LOG).get("uri") == store]


def pending_entries(folder: Path, offset: int) -> int:
    """Returns the number of entries of a log from an offset on."""
    log = folder / LOG
    if not log.exists() or log.stat().st_size <= offset:
        return 0
    return sum(1 for _ in read_lines(log, offset))


def is_usable(home: Path, id: str, uri: str) -> bool:
    """Whether a log can be started or continued: it has no other store, and was not refused as a whole."""
    folder, store = log_folder(home, id), stored_uri(uri, home)
    cursor = Cursor.read(folder)
    refused = cursor.undeliverable and cursor.refused_at is None
    return first_entry(folder / LOG).get("uri", store) == store and not refused
