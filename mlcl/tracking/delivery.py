"""Sends logs to MLflow, from one thread of a command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from mlcl.files import LOOK_EVERY
from mlcl.tracking.cursor import run_id_of
from mlcl.tracking.delivery_queue import DeliveryQueue
from mlcl.tracking.tracker import Tracker
from mlcl.tracking.undelivered import undelivered

POLL = 0.5
"""Seconds between two reads of the logs."""
MAX_PAUSE = 5.0
"""Longest pause, in seconds, between two tries while MLflow does not answer."""
JOIN_SECONDS = 5.0
"""Seconds that the last request may take after the command has ended."""


class Delivery:
    """Delivers logs in the background while the context is open; `drain` waits until all are delivered.

    One process at a time delivers a log. A later command delivers what is left at the end.
    """

    def __init__(self, tracker: Tracker, announce: Callable[[str], None] = lambda _: None) -> None:
        self._tracker = tracker
        self._queue = DeliveryQueue(tracker, announce)
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="delivery", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(JOIN_SECONDS)

    def add(self, id: str) -> None:
        """Delivers a log of this command, now and as it grows."""
        self._queue.add(id)
        self._wake.set()

    def add_undelivered(self, *, refused: bool = False) -> None:
        """Delivers the logs of earlier commands for this store; with `refused` also those MLflow refused."""
        self._queue.add_undelivered(refused=refused)
        self._wake.set()

    def run_id(self, id: str) -> str | None:
        """The id of the log's run in MLflow; None until the run is created."""
        return run_id_of(self._tracker.home, id)

    def wait_run_id(self, id: str, timeout: float) -> str | None:
        """The same, after a wait of up to `timeout` seconds."""
        end = time.monotonic() + timeout
        self._wake.set()
        while (found := self.run_id(id)) is None and time.monotonic() < end and self._thread.is_alive():
            time.sleep(LOOK_EVERY)
        return found

    def drain(self, patience: float = 10.0, stop: Callable[[], bool] = lambda: False) -> int:
        """Waits until everything is delivered; returns the number of logs that are not.

        Gives up when MLflow has not answered for `patience` seconds. After `stop` has returned True, gives
        up at the first failure, and in any case after `patience` seconds.
        """
        began, asked = time.monotonic(), None
        self._wake.set()
        while not self._queue.is_empty() and self._thread.is_alive():
            now, failing = time.monotonic(), self._queue.outage.since
            if asked is None and stop():
                asked = now
            hurried = asked is not None and (failing is not None or now - asked > patience)
            if hurried or (failing is not None and now - max(failing, began) > patience):
                break
            time.sleep(LOOK_EVERY)
        return self._queue.pending()

    def _work(self) -> None:
        pause = POLL
        try:
            while not self._ended.is_set():
                try:
                    self._queue.deliver(self._ended.is_set)
                    pause = POLL
                except Exception as error:  # the logs are kept, and the next try may succeed
                    reason = " ".join(self._tracker.safe(f"{type(error).__name__}: {error}").split())[:300]
                    self._queue.outage.failed(reason)
                    pause = min(2 * pause, MAX_PAUSE)
                self._wake.wait(pause)
                self._wake.clear()
        finally:
            self._queue.close()


def deliver_all(home: Path, uri: str, announce: Callable[[str], None] = lambda _: None) -> int:
    """Delivers every log for this store, also refused ones. Returns the number of undelivered logs.

    Raises UserError where the store does not answer.
    """
    with Delivery(Tracker(home, uri), announce) as delivery:
        delivery.add_undelivered(refused=True)
        delivery.drain()
    return len(undelivered(home, uri))
