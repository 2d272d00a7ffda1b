"""Ctrl-C and SIGTERM as a wish to stop: the first asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a stop has been asked for. Calling it asks the question."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> bool:
        """Whether a stop has been asked for."""
        return self._event.is_set()

    def set(self) -> None:
        """Asks for a stop."""
        self._event.set()


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """While inside, SIGINT and SIGTERM set the request; a second signal raises KeyboardInterrupt.

    Outside of the main thread signals cannot be caught: then nothing is installed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if request():
            raise KeyboardInterrupt
        request.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
