"""Whether something is at an address, asked once and quickly. A password in its URI is not sent."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

TIMEOUT = 5.0
"""Seconds that an answer may take."""
PORTS = {"postgresql": 5432, "postgresql+psycopg": 5432}


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite store; None for another kind of store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0])


def silent(uri: str) -> str:
    """Why nothing answers at a server's URI; empty where it does, and for what is no server."""
    scheme = urlsplit(uri).scheme
    if scheme in ("http", "https"):
        return _get(uri, "health")[1]
    if scheme in PORTS:
        parts = urlsplit(uri)
        return refused(parts.hostname or "localhost", parts.port or PORTS[scheme])
    return ""


def refused(host: str, port: int) -> str:
    """Why a port takes no connection; empty where it does."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError as error:
        return str(error)
    return ""


def get_text(uri: str, page: str, headers: Mapping[str, str] | None = None) -> str:
    """A page of a server; empty where it has none or does not answer."""
    return _get(uri, page, headers)[0]


def denies(uri: str, page: str, headers: Mapping[str, str]) -> bool:
    """Whether a server wants another user or password for a page."""
    return _get(uri, page, headers)[2] in (401, 403)


def _get(uri: str, page: str, headers: Mapping[str, str] | None = None) -> tuple[str, str, int]:
    """A page, why there is no answer, and the answer's status (0: none)."""
    parts = urlsplit(uri)
    place = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
    try:
        request = urllib.request.Request(f"{place}/{page}", headers=dict(headers or {}))
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.read(1000).decode(errors="replace").strip(), "", answer.status
    except urllib.error.HTTPError as error:
        return "", "", error.code  # something answers, and wants to know who asks
    except (OSError, ValueError, HTTPException) as error:
        return "", str(error), 0
