"""Handles Ctrl-C, SIGTERM and a closed terminal: a first signal requests a stop, a second interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOP_FILE = "STOP"
"""The name of a file whose existence requests a stop.

In the folder of a sweep or table it stops the trainings, in the folder of a run the workers of its group. All
nodes see these folders.
"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME = 0.5
"""Seconds within which two signals count as one, since `timeout`, terminals and systemd send two."""


class StopRequest:
    """A request to stop, which the user makes by a signal; a call returns whether it was made."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._shielded, self._is_interruptible = False, False
        self._request_time = 0.0

    def __call__(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    def set(self) -> None:
        """Requests a stop."""
        self._request_time = time.monotonic()
        self._event.set()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Returns a context that no signal interrupts, not even a second one; used to write states."""
        shielded, self._shielded = self._shielded, True
        try:
            yield
        finally:
            self._shielded = shielded

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Returns a context that the next signal interrupts, even in `shielded`; later signals do not."""
        shielded, self._shielded, self._is_interruptible = self._shielded, False, True
        try:
            yield
        finally:
            self._shielded, self._is_interruptible = shielded, False

    def on_signal(self) -> bool:
        """Handles a signal: requests a stop, and returns whether the running code is interrupted."""
        first = not self()
        late = not first and time.monotonic() - self._request_time >= SAME
        interrupts = not self._shielded and (late or (first and self._is_interruptible))
        self._shielded |= interrupts and self._is_interruptible
        if first:
            self.set()
        return interrupts

    def wait_for_second(self) -> None:
        """Waits until `SAME` seconds after a request: then a signal sent with the first one has arrived."""
        if self():
            time.sleep(max(0.0, self._request_time + SAME - time.monotonic()))


@contextmanager
def stop_on_signal(announce: Callable[[str], None] = lambda _: None) -> Iterator[StopRequest]:
    """Yields a request to stop that the first signal sets; a second signal raises KeyboardInterrupt.

    A signal that is ignored, such as SIGHUP under `nohup`, stays ignored. In a thread other than the main one
    no signal is handled.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        first = not request()
        if request.on_signal():
            raise KeyboardInterrupt
        if first:
            with suppress(OSError):  # the terminal may be closed
                announce("stopping; a second signal stops at once")

    numbers = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    old_handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield request
    finally:
        # The second of two signals belongs to the request, not to the next handler.
        request.wait_for_second()
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
