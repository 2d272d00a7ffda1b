"""Ctrl-C and SIGTERM as a wish to stop: the first asks, the second insists."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a stop has been asked for. Calling it asks the question."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._shielded = False

    def __call__(self) -> bool:
        """Whether a stop has been asked for."""
        return self._event.is_set()

    def set(self) -> None:
        """Asks for a stop."""
        self._event.set()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """While inside, not even a second signal interrupts: states are being written down."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False

    def insists(self) -> bool:
        """Whether another signal may interrupt what is going on."""
        return self() and not self._shielded


@contextmanager
def stop_on_signal(announce: Callable[[str], None] = lambda _: None) -> Iterator[StopRequest]:
    """While inside, SIGINT and SIGTERM set the request; a second signal raises KeyboardInterrupt.

    Outside of the main thread signals cannot be caught: then nothing is installed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if request.insists():
            raise KeyboardInterrupt
        if not request():
            request.set()
            announce("stopping; once more to insist")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
