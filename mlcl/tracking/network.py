"""Checks quickly whether servers and databases answer."""

from __future__ import annotations

import base64
import socket
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from mlcl.errors import UserError
from mlcl.tracking.uri import KEY, hide_password, sqlite_file, without_login

TIMEOUT = 10.0
"""The number of seconds that an answer may take."""
POSTGRESQL_PORT = 5432
MOST_BYTES = 2**24
"""The largest number of bytes that are read of an answer."""
# For servers on this machine: a proxy would connect to its own loopback address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Response:
    """The HTTP status and body of an answer; if there was no answer, status 0 and the reason as text."""

    status: int
    text: str


def get(url: str, headers: Mapping[str, str] | None = None) -> Response:
    """Sends a GET request once, without retries, and returns the answer. It raises no error."""
    try:
        open_url = _DIRECT.open if urlsplit(url).hostname == "127.0.0.1" else urllib.request.urlopen
        request = urllib.request.Request(url, headers=dict(headers or {}))
        with open_url(request, timeout=TIMEOUT) as answer:
            return Response(answer.status, answer.read(MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return Response(error.code, "")
    except (OSError, ValueError, HTTPException) as error:
        return Response(0, str(error) or type(error).__name__)


def basic_auth(user: str, password: str) -> dict[str, str]:
    """Returns the header of HTTP basic authentication for a user and password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def unreachable_reason(uri: str) -> str:
    """Returns why the server or database at a URI does not answer; empty if it answers, and for files."""
    try:
        parts = urlsplit(uri)
        if parts.scheme in ("http", "https"):
            answer = get(f"{without_login(uri)}/health")
            return "" if answer.status else answer.text
        # Without a host the query names the folder of a socket.
        if parts.scheme.startswith("postgresql") and parts.hostname:
            return connection_error(parts.hostname, parts.port or POSTGRESQL_PORT)
    except ValueError as error:
        return str(error)
    return ""


def host_and_port(address: str) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT` or `ray://HOST:PORT`; ('', 0) for an address without a port."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    return (host, int(port)) if port.isdigit() else ("", 0)


def connection_error(host: str, port: int) -> str:
    """Returns why a port accepts no TCP connection; empty if it accepts one."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError as error:
        return str(error)
    return ""


def check_reachable(uri: str, home: Path) -> None:
    """Creates `home`. Raises UserError if it cannot be written, or if the store does not answer.

    Also raises UserError for a store of files, and for a home whose path cannot be in a URI of SQLite.
    """
    if "://" not in uri or uri.startswith("file:"):
        # A file store would keep a point twice that was sent twice.
        raise UserError(
            "not a server or a database",
            key=KEY,
            found=hide_password(uri).rpartition("@")[2],
            allowed="http://..., https://..., sqlite:///..., postgresql+psycopg://...",
        )
    if any(sign in str(home) for sign in "?#%"):
        raise UserError("not a path for an SQLite store", key="--home", found=home, allowed="no ? # % in it")
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / ".tracking.lock").open("a").close()  # `touch` may succeed where the owner cannot write
    except OSError as error:
        raise UserError("cannot be written", key="--home", found=f"{home} ({error})") from None
    if (file := sqlite_file(uri)) is not None:
        check_sqlite(file)
    elif reason := unreachable_reason(uri):
        kind = "server" if uri.startswith("http") else "database"
        detail = f"{hide_password(uri)} ({reason})"
        raise UserError(f"the tracking {kind} does not answer", key=KEY, found=detail)


def check_sqlite(path: Path) -> None:
    """Raises UserError if the file at `path` is not a usable SQLite database."""
    try:
        with closing(sqlite3.connect(path, timeout=TIMEOUT)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        raise UserError("not a usable SQLite file", key=KEY, found=f"{path} ({error})") from None
