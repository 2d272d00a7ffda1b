"""Ctrl-C, SIGTERM and a closed terminal as requests to stop: the first ends in order, the second at once."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask for a stop."""
SAME = 0.5
"""Seconds in which signals are one: `timeout`, a closed terminal and systemd send two."""


class StopRequest:
    """Whether a stop has been asked for. Calling it asks the question."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._shielded, self._at_once = False, False
        self._asked = 0.0

    def __call__(self) -> bool:
        """Whether a stop has been asked for."""
        return self._event.is_set()

    def set(self) -> None:
        """Asks for a stop."""
        self._asked = time.monotonic()
        self._event.set()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """While inside, not even a second signal interrupts: states are being written down."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """While inside, also within a shield, the first signal interrupts; no further one does meanwhile."""
        shielded, self._shielded, self._at_once = self._shielded, False, True
        try:
            yield
        finally:
            self._shielded, self._at_once = shielded, False

    def take(self) -> bool:
        """Takes a signal; returns whether it interrupts what is going on."""
        first = not self()
        late = not first and time.monotonic() - self._asked >= SAME
        interrupts = not self._shielded and (late or (first and self._at_once))
        self._shielded |= interrupts and self._at_once
        if first:
            self.set()
        return interrupts

    def settling(self) -> float:
        """Seconds until a further signal is no longer the one that asked."""
        return max(0.0, self._asked + SAME - time.monotonic()) if self() else 0.0


@contextmanager
def stop_on_signal(announce: Callable[[str], None] = lambda _: None) -> Iterator[StopRequest]:
    """While inside, the signals set the request; a second one raises KeyboardInterrupt.

    One that is ignored stays so: `nohup` does that to SIGHUP. Outside of the main thread signals cannot be
    caught: then nothing is installed.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        first = not request()
        if request.take():
            raise KeyboardInterrupt
        if first:
            with suppress(OSError):  # the terminal may be closed
                announce("stopping; once more to insist")

    heard = [number for number in ASKING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield request
    finally:
        # The second of two signals may still come: it belongs to the request, not to the next handler.
        time.sleep(request.settling())
        for number, handler in before.items():
            signal.signal(number, handler)
