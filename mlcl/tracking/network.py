"""Quick requests to servers. A user and a password in a URI are not sent."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from urllib.parse import urlsplit

from mlcl.tracking.uri import without_login

TIMEOUT = 10.0
"""Seconds that an answer may take."""
POSTGRESQL_PORT = 5432


def unreachable_reason(uri: str) -> str:
    """Why no server answers at a URI; empty where one does, and for files and sockets."""
    try:
        parts = urlsplit(uri)
        if parts.scheme in ("http", "https"):
            return _get(uri, "health")[1]
        # Without a host the query names the folder of a socket.
        if parts.scheme.startswith("postgresql") and parts.hostname:
            return connection_error(parts.hostname, parts.port or POSTGRESQL_PORT)
    except ValueError as error:
        return str(error)
    return ""


def connection_error(host: str, port: int) -> str:
    """Why a port takes no connection; empty where it takes one."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError as error:
        return str(error)
    return ""


def get_text(uri: str, page: str, headers: Mapping[str, str] | None = None) -> str:
    """A page of a server; empty where there is none."""
    return _get(uri, page, headers)[0]


def denies_access(uri: str, page: str, headers: Mapping[str, str]) -> bool:
    """Whether a server refuses a page with status 401 or 403."""
    return _get(uri, page, headers)[2] in (401, 403)


def _get(uri: str, page: str, headers: Mapping[str, str] | None = None) -> tuple[str, str, int]:
    """The text of a page, the reason for no answer, and the status (0 without an answer)."""
    try:
        request = urllib.request.Request(f"{without_login(uri)}/{page}", headers=dict(headers or {}))
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.read(1000).decode(errors="replace").strip(), "", answer.status
    except urllib.error.HTTPError as error:
        return "", "", error.code  # a server answers, and asks for a login
    except (OSError, ValueError, HTTPException) as error:
        return "", str(error), 0
