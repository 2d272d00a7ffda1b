"""One SQLite file per home, `home.db`: the only place where states and scores are kept.

Two tables, to which rows are added and from which none is removed:

- `runs` has one row per run, sweep or table; only its state and the digest of its last event change.
- `events` has what the commands of a sweep or a table did, in order, as JSON.

SQLite does not notice a flipped bit in a value. Each row therefore has a digest; that of an event also covers
the events of its run before it, and the row of the run names the last one:

    digest of an event = first 16 hexadecimal digits of SHA-256(digest of the event before + JSON)

Every write is one transaction that is on the disk when it returns (`synchronous=FULL`). Only commands open
the file, never a training, so that workers on other machines need no locks on a shared disk.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mlcl.backports import SqliteCode, sqlite_code
from mlcl.errors import MachineError, UserError
from mlcl.files import new_file

DATABASE, BACKUP = "home.db", "home.db.backup"
IMPORTING = ".import.lock"
"""The file in the home that an import into it locks."""
KINDS = ("runs", "sweeps", "tables")
"""The folders of a home, in which each run, sweep or table has a folder of its own."""
VERSION = 1
"""The version of the database schema, stored in SQLite's `user_version`."""
SCHEMA = """
CREATE TABLE runs (number INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT, digest TEXT);
CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER, content TEXT, digest TEXT);
CREATE INDEX events_of_run ON events (run, number);
"""
SYNCHRONOUS = "FULL"
"""The setting `synchronous` of SQLite with which a committed transaction survives a power cut."""
PATIENCE = 60.0
"""The number of seconds that a transaction waits for transactions of other commands."""
PAGE = 10_000
"""The number of events that are read at once."""
CURE = "`mlcl doctor --fix`, which takes the backup of the last command, or a copy of the file"


def digest(previous_digest: str, text: str) -> str:
    """Returns the digest of `text` chained to `previous_digest`, the digest of the texts before it."""
    # A flipped bit may turn a text into bytes, which are formatted as another text.
    return hashlib.sha256(f"{previous_digest}{text}".encode()).hexdigest()[:16]


def read_event(content: str) -> dict[str, Any]:
    """Decodes an event; equal keys of all events share one string in memory."""
    event: dict[str, Any] = json.loads(
        content, object_pairs_hook=lambda pairs: {sys.intern(key): value for key, value in pairs}
    )
    return event


class Database:
    """The database of a home. Each call opens a connection of its own and closes it.

    The methods raise UserError if the file is damaged or was written by a later mlcl, MachineError if other
    commands keep it locked for a minute, and OSError if the disk is full or does not answer.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.file = home, home / DATABASE

    def create(self) -> None:
        """Creates the file if it is missing. Raises UserError for a database written by a later mlcl."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self._connect("rwc") as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={VERSION}")
            connection.execute("COMMIT")
        self.check_version()

    def check_version(self) -> None:
        """Raises UserError for a database that was written by a later mlcl."""
        if not self.file.exists():
            return
        with self._connect("rw") as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise UserError(
                "this home was written by a later mlcl",
                file=self.file,
                key="user_version",
                found=version,
                allowed=f"{VERSION} or less: install the mlcl that wrote it, or give another --home",
            )

    def check(self) -> None:
        """Reads the whole file. Raises UserError if it is damaged, or missing although runs have folders."""
        if not self.file.exists():
            if (folder := self._find_run_folder()) is not None:
                raise UserError(
                    "the database of this home is missing", file=self.file, found=folder, allowed=CURE
                )
            return
        self.check_version()
        with self._connect("rw") as connection:
            if not self._has_tables(connection):
                return
            (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            raise self._damage_error(answer)
        for run in self.runs():
            for _ in self.events(run):
                pass

    def _has_tables(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has tables. Raises UserError if it has none although runs have folders."""
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return True
        if self._find_run_folder() is not None:
            raise self._damage_error("it has no tables")
        return False

    def _find_run_folder(self) -> Path | None:
        paths = (path for kind in KINDS for path in (self.home / kind).glob("mlcl-*"))
        return next((path for path in paths if path.is_dir()), None)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Opens a context for writes: all are on the disk when it ends, or none if it raises an exception."""
        with self._connect("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(self, connection)
                yield transaction
                transaction.commit()
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def runs(self) -> dict[int, dict[str, Any]]:
        """Returns the fields of all runs, sweeps and tables, keyed by number, in the order of creation."""
        if not self.file.exists():
            return {}
        with self._connect("rw") as connection:
            connection.execute("BEGIN")
            if not self._has_tables(connection):
                return {}
            rows = connection.execute("SELECT number, content, digest FROM runs ORDER BY number").fetchall()
            last_row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'runs'").fetchone()
            connection.execute("COMMIT")
        if [number for number, *_ in rows] != list(range(1, (last_row[0] if last_row else 0) + 1)):
            raise self._damage_error("rows of runs are missing")
        return {number: self._read_run(number, content, sum) for number, content, sum in rows}

    def events(self, run: int) -> Iterator[tuple[dict[str, Any], str]]:
        """Yields the events of the sweep or table with the number `run`, in order, each with its digest.

        Events that are added after the first one was read are left out. The database is locked for one page
        of events at a time, so that readers of a long sweep do not block the command that runs it.
        """
        with self._connect("rw") as connection:
            connection.execute("BEGIN")
            run_row = connection.execute(
                "SELECT content, digest FROM runs WHERE number = ?", (run,)
            ).fetchone()
            newest_row = connection.execute(
                "SELECT digest FROM events WHERE run = ? ORDER BY number DESC LIMIT 1", (run,)
            ).fetchone()
            connection.execute("COMMIT")
        if run_row is None:
            raise self._damage_error(f"run {run} is missing")
        last_digest, current_digest, count = self._read_run(run, *run_row)["last_event"], "", 0
        if last_digest != (newest_row[0] if newest_row else ""):
            raise self._damage_error(f"the last events of run {run} are missing")
        page: list[tuple[int, str, str]] = []
        while current_digest != last_digest:
            with self._connect("rw") as connection:
                page = connection.execute(
                    "SELECT number, content, digest FROM events WHERE run = ? AND number > ? "
                    f"ORDER BY number LIMIT {PAGE}",
                    (run, page[-1][0] if page else 0),
                ).fetchall()
            if not page:
                raise self._damage_error(f"the last events of run {run} are missing")
            for _, content, sum in page:
                current_digest, count = digest(current_digest, content), count + 1
                if current_digest != sum:
                    raise self._damage_error(
                        f"event {count} of run {run} was changed, or one before it is missing"
                    )
                yield read_event(content), current_digest
                if current_digest == last_digest:
                    break

    def back_up(self) -> None:
        """Replaces the backup file by a copy of the present content, atomically."""
        if not self.file.exists():
            return
        with new_file(self.home / BACKUP) as partial_file:
            with self._connect("rw") as connection, closing(sqlite3.connect(partial_file)) as copy:
                connection.backup(copy)
            with partial_file.open("rb") as file:
                os.fsync(file.fileno())

    def _read_run(self, number: int, content: str, sum: str) -> dict[str, Any]:
        if digest(str(number), content) != sum:
            raise self._damage_error(f"run {number} was changed")
        fields: dict[str, Any] = json.loads(content)
        return fields

    def _damage_error(self, detail: object) -> UserError:
        return UserError("the database of this home is damaged", file=self.file, found=detail, allowed=CURE)

    @contextmanager
    def _connect(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            uri = f"{self.file.resolve().as_uri()}?mode={mode}"
            with closing(
                sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
            ) as connection:
                connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
                connection.execute("PRAGMA journal_mode=TRUNCATE")  # deleting the journal takes longer
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message of SQLite quotes damaged bytes
            raise self._translate_error(error) from None

    def _translate_error(self, error: Exception) -> Exception:
        code = sqlite_code(error)
        if code in (SqliteCode.BUSY, SqliteCode.LOCKED):
            return MachineError(f"{self.file}: other commands have kept it locked for {PATIENCE:.0f} s")
        if code == SqliteCode.FULL:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.file))
        if code in (SqliteCode.CANTOPEN, SqliteCode.READONLY, SqliteCode.IOERR):
            return OSError(errno.EIO, f"{error}", str(self.file))
        return self._damage_error(error)


class Transaction:
    """Writes to the database that are stored together or not at all."""

    def __init__(self, database: Database, connection: sqlite3.Connection) -> None:
        self._database, self._connection = database, connection

    def add_run(self, fields: Mapping[str, Any]) -> int:
        """Adds a run, sweep or table with these fields; returns its number, the largest so far."""
        self._connection.execute("INSERT INTO runs (content) VALUES (NULL)")
        number = int(self._connection.execute("SELECT last_insert_rowid()").fetchone()[0])
        self._write_row(number, {**fields, "last_event": ""})
        return number

    def change_run(self, number: int, **fields: Any) -> None:
        """Replaces the given fields of the run, sweep or table with this number."""
        self._write_row(number, {**self._read_row(number), **fields})

    def add_event(self, run: int, content: str, last_digest: str) -> str:
        """Adds an event (JSON) after that with digest `last_digest`; returns the digest of the new one."""
        row = self._read_row(run)
        if row["last_event"] != last_digest:
            raise self._database._damage_error(f"run {run} has events that its command did not write")
        sum = digest(last_digest, content)
        self._connection.execute(
            "INSERT INTO events (run, content, digest) VALUES (?, ?, ?)", (run, content, sum)
        )
        self._write_row(run, {**row, "last_event": sum})
        return sum

    def commit(self) -> None:
        """Commits the transaction: all of its writes are on the disk when this returns."""
        self._connection.execute("COMMIT")

    def _read_row(self, number: int) -> dict[str, Any]:
        row = self._connection.execute(
            "SELECT content, digest FROM runs WHERE number = ?", (number,)
        ).fetchone()
        if row is None:
            raise self._database._damage_error(f"run {number} is missing")
        return self._database._read_run(number, *row)

    def _write_row(self, number: int, fields: Mapping[str, Any]) -> None:
        content = json.dumps(fields)
        self._connection.execute(
            "UPDATE runs SET content = ?, digest = ? WHERE number = ?",
            (content, digest(str(number), content), number),
        )
