"""Checks that a tracking store answers, with one quick request, before anything starts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mlcl.errors import UserError
from mlcl.tracking.network import TIMEOUT, unreachable_reason
from mlcl.tracking.uri import KEY, shown, sqlite_file


def check_reachable(uri: str, home: Path) -> None:
    """Raises UserError where `home` cannot be written, or the store at `uri` does not answer or suit."""
    if "://" not in uri or uri.startswith("file:"):
        # A file store would keep a point twice that was sent twice.
        raise UserError(
            "not a server or a database",
            key=KEY,
            found=shown(uri).rpartition("@")[2],
            allowed="http://..., https://..., sqlite:///..., postgresql+psycopg://...",
        )
    if any(sign in str(home) for sign in "?#%"):
        raise UserError("not a path for an SQLite store", key="--home", found=home, allowed="no ? # % in it")
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / ".tracking.lock").open("a").close()  # its owner may `touch` what cannot be written
    except OSError as error:
        raise UserError("cannot be written", key="--home", found=f"{home} ({error})") from None
    if (file := sqlite_file(uri)) is not None:
        check_sqlite(file)
    elif reason := unreachable_reason(uri):
        kind = "server" if uri.startswith("http") else "database"
        found = f"{shown(uri)} ({reason})"
        raise UserError(f"the tracking {kind} does not answer", key=KEY, found=found)


def check_sqlite(path: Path) -> None:
    """Raises UserError where the file is no usable SQLite database."""
    try:
        with closing(sqlite3.connect(path, timeout=TIMEOUT)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise UserError("not a usable SQLite file", key=KEY, found=f"{path} ({error})") from None
