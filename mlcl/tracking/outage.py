"""The time for which MLflow does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable

ANNOUNCE_AFTER = 2
"""Failures in a row after which an outage is announced: a busy store may refuse a single request."""


class Outage:
    """Counts failed requests in a row; announces an outage once, and its end once."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.since: float | None = None
        """Time of the first failure (`time.monotonic`); None while MLflow answers."""
        self._announce = announce
        self._failures = 0

    def failed(self, reason: str) -> None:
        """Counts a request that failed."""
        self._failures += 1
        if self.since is None:
            self.since = time.monotonic()
        if self._failures == ANNOUNCE_AFTER:
            self._announce(f"MLflow does not answer ({reason}); logs are kept and delivered later")

    def answered(self) -> None:
        """Ends the outage, if there is one."""
        if self._failures >= ANNOUNCE_AFTER:
            self._announce("MLflow answers again; logs are being delivered")
        self._failures, self.since = 0, None
