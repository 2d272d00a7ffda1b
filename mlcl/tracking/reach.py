"""Whether a tracking store can be reached at all: asked once, quickly, before anything starts."""

from __future__ import annotations

import sqlite3
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from mlcl.errors import UserError
from mlcl.tracking.uri import KEY, shown

TIMEOUT = 10.0
"""Seconds that a server may take to answer."""


def reach(uri: str, home: Path) -> None:
    """Raises UserError where `home` cannot be written, or the store at `uri` will not do."""
    if "://" not in uri or uri.startswith("file:"):
        # Sent twice, a point would be kept twice there.
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
    if uri.startswith("sqlite:///"):
        _reach_sqlite(uri)
    elif uri.startswith(("http://", "https://")):
        _reach_server(uri)


def _reach_sqlite(uri: str) -> None:
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    try:
        connection = sqlite3.connect(path, timeout=TIMEOUT)
        try:
            connection.execute("PRAGMA schema_version")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UserError("not a usable SQLite file", key=KEY, found=f"{path} ({error})") from None


def _reach_server(uri: str) -> None:
    try:
        parts = urlsplit(uri)
        place = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        with urllib.request.urlopen(f"{place}/health", timeout=TIMEOUT):
            return
    except urllib.error.HTTPError:
        return  # something answers: what it wants will be said by the first request
    except (OSError, ValueError, HTTPException) as error:
        raise UserError(
            "the tracking server does not answer", key=KEY, found=f"{shown(uri)} ({error})"
        ) from None
