"""Posts the end of a sweep or table to the URL of `tracking.notify`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from mlcl.config.cluster import Reference
from mlcl.errors import UserError

KEY = "tracking.notify"
TIMEOUT = 10.0
"""Seconds to wait for the answer."""


def resolve_target(target: str | Reference | None) -> str | None:
    """Returns the URL to post to, None without one.

    Raises UserError if a reference has no value, or its value is no URL; the error does not show the value.
    """
    url = target.resolve(KEY) if isinstance(target, Reference) else target
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise UserError("the secret is no URL", key=KEY, allowed="http://..., https://...")
    return url


def notify(url: str | None, content: Mapping[str, Any], announce: Callable[[str], None]) -> None:
    """Posts `content` as JSON. A failure is announced, with the host and not the URL, which may be secret."""
    if url is None:
        return
    body = json.dumps(content).encode()
    request = Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with urlopen(request, timeout=TIMEOUT):
            pass
    except (OSError, HTTPException, ValueError) as error:
        why = str(getattr(error, "reason", "") or getattr(error, "code", "") or type(error).__name__)
        announce(f"{urlsplit(url).hostname} is not notified: {why}")
