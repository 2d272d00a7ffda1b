"""HTTP requests to servers on this machine."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException

TIMEOUT = 10.0
"""Seconds that an answer may take."""
# Without proxies: a proxy would connect to its own loopback address.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    """Status and text of an answer; without an answer, status 0 and the reason."""

    status: int
    text: str


def get(url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Sends a GET request, once."""
    try:
        request = urllib.request.Request(url, headers=dict(headers or {}))
        with _OPENER.open(request, timeout=TIMEOUT) as answer:
            return Answer(answer.status, answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, "")
    except (OSError, ValueError, HTTPException) as error:
        return Answer(0, str(error))
