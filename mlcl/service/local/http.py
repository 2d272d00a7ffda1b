"""One request to a server on this machine."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException

TIMEOUT = 10.0
"""Seconds that an answer may take."""
# A proxy of the user's would be asked for its own loopback address.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    """HTTP status and text; status 0 and the reason where nothing answers."""

    status: int
    text: str


def get(url: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Asks once."""
    try:
        request = urllib.request.Request(url, headers=dict(headers or {}))
        with _OPENER.open(request, timeout=TIMEOUT) as answer:
            return Answer(answer.status, answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return Answer(error.code, "")
    except (OSError, ValueError, HTTPException) as error:
        return Answer(0, str(error))
