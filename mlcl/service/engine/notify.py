"""Posts the end of a sweep or table to the URL of `tracking.notify`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from mlcl.config.cluster import Reference, check_url
from mlcl.errors import UserError

KEY = "tracking.notify"
TIMEOUT = 10.0
"""Seconds to wait for the answer."""


def resolve_target(target: str | Reference | None) -> str | None:
    """Returns the URL to post to, if there is one; an error about a secret does not show its value."""
    if not isinstance(target, Reference):
        return target
    try:
        return check_url(target.resolve(KEY))
    except ValueError as error:
        raise UserError(f"the secret is {error}", key=KEY, allowed="http://..., https://...") from None


class _NoRedirect(HTTPRedirectHandler):
    """Raises HTTPError for a redirect, which would turn the POST into a GET without a body."""

    def redirect_request(self, *_request: Any) -> None:
        """Refuses the redirect."""


def notify(url: str | None, content: Mapping[str, Any], announce: Callable[[str], None]) -> None:
    """Posts `content` as JSON. Announces a failure with the host alone, since the URL may be secret."""
    if url is None:
        return
    body = json.dumps(content).encode()
    request = Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with build_opener(_NoRedirect).open(request, timeout=TIMEOUT):
            pass
    except (OSError, HTTPException, ValueError) as error:
        why = str(getattr(error, "reason", "") or getattr(error, "code", "") or type(error).__name__)
        announce(f"{urlsplit(url).hostname} is not notified: {why}")
