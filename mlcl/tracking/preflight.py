"""Checks that a tracking store answers, with one quick request, before anything starts."""

from __future__ import annotations

import socket
import sqlite3
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from mlcl.errors import UserError
from mlcl.tracking.uri import KEY, shown, sqlite_file, without_login

TIMEOUT = 10.0
"""Seconds that a server may take to answer."""


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
        (home / ".tracking.lock").touch()
    except OSError as error:
        raise UserError("cannot be written", key="--home", found=f"{home} ({error})") from None
    if (file := sqlite_file(uri)) is not None:
        _check_sqlite(file)
    elif uri.startswith(("http://", "https://")):
        _check_server(uri)
    elif uri.startswith("postgresql"):
        _check_database(uri)


def _check_sqlite(path: Path) -> None:
    try:
        connection = sqlite3.connect(path, timeout=TIMEOUT)
        try:
            connection.execute("PRAGMA schema_version")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UserError("not a usable SQLite file", key=KEY, found=f"{path} ({error})") from None


def _check_server(uri: str) -> None:
    try:
        with urllib.request.urlopen(f"{without_login(uri)}/health", timeout=TIMEOUT):
            return
    except urllib.error.HTTPError:
        return  # a server answers; the first request will tell what it needs
    except (OSError, ValueError, HTTPException) as error:
        raise UserError(
            "the tracking server does not answer", key=KEY, found=f"{shown(uri)} ({error})"
        ) from None


def _check_database(uri: str) -> None:
    """Asked here because MLflow itself would try for minutes."""
    try:
        parts = urlsplit(uri)
        if parts.hostname:  # otherwise the query names the folder of a socket
            socket.create_connection((parts.hostname, parts.port or 5432), timeout=TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise UserError(
            "the tracking database does not answer", key=KEY, found=f"{shown(uri)} ({error})"
        ) from None
