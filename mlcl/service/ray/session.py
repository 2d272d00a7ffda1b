"""A Ray session: the cluster that RAY_ADDRESS names, or one on this machine for as long as it is needed.

A head that does not answer is announced: Ray waits for it without a word, and then ends the process.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path

import ray

from mlcl.errors import UserError
from mlcl.service.process.signals import STOP_SIGNALS
from mlcl.service.ray.folder import check_shared
from mlcl.service.ray.local import local_ray
from mlcl.tracking.network import connection_error, host_and_port

LOOK_EVERY = 5.0
"""Seconds between looks."""

AWAY = "Ray's head at {} does not answer. If it stays away, Ray ends this command; the same command goes on."
BACK = "Ray's head at {} answers again"


@contextmanager
def head_monitored(address: str, announce: Callable[[str], None]) -> Iterator[None]:
    """Announces when the head at HOST:PORT stops answering, and when it answers again, once each."""
    over = threading.Event()
    threading.Thread(target=_watch, args=(address, announce, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(address: str, announce: Callable[[str], None], over: threading.Event) -> None:
    away = False
    while not over.wait(LOOK_EVERY):
        before, away = away, bool(connection_error(*host_and_port(address)))
        if away != before and not over.is_set():
            announce((AWAY if away else BACK).format(address))


def _reach(address: str) -> None:
    """Raises UserError where no head listens: Ray itself would wait without a word."""
    host, port = host_and_port(address)
    if host and (error := connection_error(host, port)):  # Ray itself finds "auto" and the like
        raise UserError("no Ray cluster answers", key="RAY_ADDRESS", found=f"{address} ({error})")


def on_cluster() -> bool:
    """Whether RAY_ADDRESS names a cluster. Nodes of a cluster may be lost and replaced."""
    return bool(os.environ.get("RAY_ADDRESS"))


@contextmanager
def ray_session(
    home: Path, cpus: int = 1, announce: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Connects to RAY_ADDRESS where it is set, else starts a local Ray that ends with the context.

    Raises UserError where no cluster answers, or one has nodes that do not see `home`. Announces, from a
    thread of its own, when the head stops answering: Ray ends the process without it.

    A local Ray has the machine's CPUs, or `cpus` where that is more: processes then share cores, which is
    slow but right, so that a two-worker job can be tried on any laptop.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    with ExitStack() as stack:
        # Ray prints deaths of its processes to standard output, which is for results; some while it ends.
        stack.enter_context(redirect_stdout(sys.stderr))
        with _own_handlers():
            stack.enter_context(_cluster(address) if address else local_ray(cpus, announce))
        stack.enter_context(head_monitored(ray.get_runtime_context().gcs_address, announce))
        check_shared(home)
        yield


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    _reach(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except ConnectionError as error:
        raise _refused(address, str(error.__cause__)) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _own_handlers() -> Iterator[None]:
    """Restores the handlers of signals, which `ray.init` replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # None is a handler of another library, which cannot be set again
                signal.signal(number, handler)


def _refused(address: str, cause: str) -> UserError:
    """The error for an address where something listens that refuses the connection, often for its token."""
    if "AuthenticationError" in cause:
        return UserError(
            "the Ray cluster refuses the token",
            key="RAY_AUTH_TOKEN_PATH",
            found=os.environ.get("RAY_AUTH_TOKEN_PATH", "none"),
            allowed="a file with the cluster's token, and RAY_AUTH_MODE=token",
        )
    reason = cause.strip().rpartition("\n")[2]
    return UserError("no connection to the Ray cluster", key="RAY_ADDRESS", found=f"{address} ({reason})")
