"""Quick requests to servers."""

from __future__ import annotations

import base64
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urlsplit

from mlcl.tracking.uri import without_login

TIMEOUT = 10.0
"""Seconds that an answer may take."""
POSTGRESQL_PORT = 5432
MOST_BYTES = 2**24
"""Most bytes of an answer that are read."""
# For servers on this machine: a proxy would connect to its own loopback address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    """Status and text of an answer; without an answer, status 0 and the reason."""

    status: int
    text: str


def get(url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Sends a GET request, once."""
    try:
        open_url = _DIRECT.open if urlsplit(url).hostname == "127.0.0.1" else urllib.request.urlopen
        request = urllib.request.Request(url, headers=dict(headers or {}))
        with open_url(request, timeout=TIMEOUT) as answer:
            return Answer(answer.status, answer.read(MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, "")
    except (OSError, ValueError, HTTPException) as error:
        return Answer(0, str(error) or type(error).__name__)


def basic_auth(user: str, password: str) -> dict[str, str]:
    """The header of a request with user and password."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


def unreachable_reason(uri: str) -> str:
    """Why no server answers at a URI; empty where one does, and for files and sockets."""
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


def connection_error(host: str, port: int) -> str:
    """Why a port takes no connection; empty where it takes one."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError as error:
        return str(error)
    return ""
