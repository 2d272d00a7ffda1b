"""Says that a cluster's head does not answer: Ray waits for it without a word, and then ends the process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_EVERY = 5.0
"""Seconds between looks."""
TIMEOUT = 10.0
"""Seconds that a head may take to accept a connection."""

AWAY = "Ray's head at {} does not answer. If it stays away, Ray ends this command; the same command goes on."
BACK = "Ray's head at {} answers again"


def silent(address: str) -> str:
    """Why HOST:PORT does not answer; empty where it does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
    except OSError as error:
        return str(error)
    return ""


@contextmanager
def head_monitored(address: str, announce: Callable[[str], None]) -> Iterator[None]:
    """While inside, announces once when the head's HOST:PORT does not answer, and once when it does again."""
    over = threading.Event()
    threading.Thread(target=_watch, args=(address, announce, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(address: str, announce: Callable[[str], None], over: threading.Event) -> None:
    away = False
    while not over.wait(LOOK_EVERY):
        before, away = away, bool(silent(address))
        if away != before and not over.is_set():
            announce((AWAY if away else BACK).format(address))
