"""Where a study is kept: a journal file, SQLite or PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mlcl.errors import UserError
from mlcl.tracking.uri import driver_error, without_password

KEY = "--study"
FORMS = "a journal file's path, sqlite:///FILE, postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
CONNECT_SECONDS = 10
"""How long a server may take to accept a connection."""
LOCK_SECONDS = 60
"""How long SQLite waits for another process to finish its write."""
_HEAD = b'{"op_code":'


def open_storage(where: str | Path) -> BaseStorage:
    """The storage at a path (a journal file) or at a database's URL, made where it is new.

    Raises UserError where it cannot be reached or is something else. No message has the password in it.
    """
    text = str(where)
    return _database(text) if "://" in text else _journal(Path(where))


def _database(text: str) -> BaseStorage:
    scheme, _, rest = text.partition("://")
    if scheme == "postgresql":
        scheme = "postgresql+psycopg"
    if scheme not in ("sqlite", "postgresql+psycopg"):
        raise UserError("unknown kind of storage", key=KEY, found=f"{scheme}://...", allowed=FORMS)
    if text.count("@") > 1:
        raise UserError(
            "an @ inside a user or password is written %40", key=KEY, found=without_password(text)
        )
    try:
        url = make_url(f"{scheme}://{rest}")
    except (ArgumentError, ValueError):
        # What cannot be parsed cannot be shown without its password either.
        raise UserError(
            "not the URL of a database", key=KEY, found=f"{scheme}://...", allowed=FORMS
        ) from None
    if scheme == "sqlite" and url.database in (None, "", ":memory:"):
        raise UserError("a study in memory is lost with its process", key=KEY, found=text, allowed=FORMS)
    timeout = {"timeout": LOCK_SECONDS} if scheme == "sqlite" else {"connect_timeout": CONNECT_SECONDS}
    try:
        return RDBStorage(
            url.render_as_string(hide_password=False),
            # A server that was restarted must not fail the next statement.
            engine_kwargs={"connect_args": timeout, "pool_pre_ping": True},
        )
    except (SQLAlchemyError, RuntimeError, ImportError) as error:
        found = f"{without_password(text)} ({driver_error(error, url.password)})"
        raise UserError("the storage of the study cannot be used", key=KEY, found=found) from None


class _Lock(BaseJournalFileLock):
    """The system's own file lock: it ends with the process that holds it, however that ends."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(f"{path}.lock")

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _journal(path: Path) -> BaseStorage:
    lock = _Lock(path)
    try:
        _check_journal(path)
        lock.acquire()
        try:
            _cut_torn_line(path)
        finally:
            lock.release()
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except (OSError, ValueError, KeyError) as error:
        found = f"{path} ({error})"
        raise UserError("not a study's journal", key=KEY, found=found, allowed=FORMS) from None


def _check_journal(path: Path) -> None:
    """Raises OSError or ValueError where no journal is or can be, before a lock is left beside it."""
    if not path.exists():
        path.parent.stat()
        return
    with path.open("rb") as file:
        if not _HEAD.startswith(file.read(len(_HEAD))):
            raise ValueError("another kind of file")


def _cut_torn_line(path: Path) -> None:
    """Cuts off the part of a line that a killed writer left; the next writer would add to it otherwise."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
            os.fsync(file.fileno())
