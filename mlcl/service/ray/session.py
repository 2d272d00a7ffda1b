"""A Ray session: a connection to the cluster that RAY_ADDRESS names, or a Ray started on this machine."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path

import psutil
import ray

from mlcl.errors import MachineError, UserError
from mlcl.service.process.limits import hopeless_limits, narrow_limits, usable_cpus
from mlcl.service.process.signals import STOP_SIGNALS
from mlcl.service.ray.address import FORMS, RAY, ask_cluster, is_dashboard, is_refused, on_cluster
from mlcl.service.ray.folder import check_shared, default_folder, ensure_token, short_folder
from mlcl.service.ray.private import (
    ImportPath,
    keep_handler,
    kill_at_once,
    on_loopback,
    running_heads,
    without_uv,
)
from mlcl.tracking.network import connection_error, host_and_port

LOOK_EVERY = 5.0
"""Seconds between two checks whether Ray's head answers."""
SAY_EVERY = 15.0
"""Seconds between two announcements that a command still waits for a Ray cluster."""
ATTEMPTS = 2
"""The number of attempts to start Ray, which on a busy machine may exceed Ray's time limit of 30 seconds."""
HELD = (signal.SIGTERM, signal.SIGHUP)
"""Signals that are blocked in Ray's processes; Ray itself shields them from Ctrl-C."""

AWAY = "Ray's head at {} does not answer. If it stays away, Ray ends this command; the same command goes on."
BACK = "Ray's head at {} answers again"


@contextmanager
def _run_in_thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs `work` in another thread, with an event that is set when the context ends."""
    finished = threading.Event()
    threading.Thread(target=work, args=(finished,), daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def monitor_head(address: str, announce: Callable[[str], None]) -> AbstractContextManager[None]:
    """Announces, in a context, when the head at HOST:PORT stops answering, and when it answers again."""

    def watch(finished: threading.Event) -> None:
        unreachable = False
        while not finished.wait(LOOK_EVERY):
            was_unreachable, unreachable = unreachable, bool(connection_error(*host_and_port(address)))
            if unreachable != was_unreachable and not finished.is_set():
                announce((AWAY if unreachable else BACK).format(address))

    return _run_in_thread(watch)


def _announce_wait(announce: Callable[[str], None], text: str) -> AbstractContextManager[None]:
    """Announces a text every SAY_EVERY seconds until the context ends."""

    def say(finished: threading.Event) -> None:
        while not finished.wait(SAY_EVERY):
            announce(text)

    return _run_in_thread(say)


def _find_head(address: str) -> str:
    """Returns the address of the cluster to join, for `auto` that of the last `ray start` or the only Ray.

    Raises UserError if no cluster answers there, or if several run and `auto` is not clear.
    """
    if is_dashboard(address):
        raise UserError("the address of a dashboard", key=RAY, found=address, allowed=FORMS)
    if address == "auto":
        heads, latest_head = running_heads()
        if not heads:
            raise UserError("no Ray cluster runs on this machine", key=RAY, found=address, allowed=FORMS)
        if latest_head not in heads and len(heads) > 1:
            problem = "several Rays run on this machine"
            raise UserError(problem, key=RAY, found=address, allowed=sorted(heads))
        address = str(latest_head if latest_head in heads else next(iter(heads)))
    host, port = host_and_port(address)
    if not host:
        raise UserError("not the address of a Ray cluster", key=RAY, found=address, allowed=FORMS)
    if error := connection_error(host, port):
        raise UserError("no Ray cluster answers", key=RAY, found=f"{address} ({error})")
    if "://" not in address:
        version, reason = ask_cluster(address)
        if not version:
            raise _join_error(address, reason)
    return address


@contextmanager
def ray_session(
    home: Path, cpus: int = 1, announce: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Connects to RAY_ADDRESS if it is set, else starts a local Ray that ends with the context.

    Raises UserError if no cluster answers, or if its nodes do not see `home`. Announces when the head stops
    answering. Does nothing if this process is connected to Ray already. A local Ray has the CPUs that this
    process may use, or `cpus` if that is more, so that a job of two workers can be tried on any laptop.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get(RAY, "")
    with ExitStack() as stack:
        # Ray prints deaths of its processes, also while it ends, to standard output, which is for results.
        stack.enter_context(redirect_stdout(sys.stderr))
        with keep_handler(), without_uv():
            stack.enter_context(
                _join_cluster(address, announce) if on_cluster() else local_ray(cpus, announce)
            )
        stack.enter_context(monitor_head(ray.get_runtime_context().gcs_address, announce))
        with _announce_wait(announce, "waiting for the nodes of the Ray cluster"):
            check_shared(home)
        yield


@contextmanager
def _join_cluster(address: str, announce: Callable[[str], None]) -> Iterator[None]:
    address = _find_head(address)
    try:
        with _hold_signals(), _announce_wait(announce, f"still joining the Ray cluster at {address}"):
            ray.init(
                address=address, job_config=ImportPath(), log_to_driver=False, logging_level=logging.WARNING
            )
    except ConnectionError as error:
        raise _join_error(address, str(error.__cause__)) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Blocks the signals in HELD in this thread, and restores the handlers, which Ray's C++ code replaces.

    The restored handler gets a signal that arrived in the context. Ray's processes inherit the mask.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS if is_main}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # None is a handler of another library, which cannot be set again
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _join_error(address: str, cause: str) -> UserError:
    if is_refused(cause):
        return UserError(
            "the Ray cluster refuses the token",
            key="RAY_AUTH_TOKEN_PATH",
            found=os.environ.get("RAY_AUTH_TOKEN_PATH", "none"),
            allowed="a file with the cluster's token, and RAY_AUTH_MODE=token",
        )
    reason = cause.strip().rpartition("\n")[2]
    return UserError("no connection to the Ray cluster", key="RAY_ADDRESS", found=f"{address} ({reason})")


@contextmanager
def local_ray(cpus: int, announce: Callable[[str], None]) -> Iterator[None]:
    """Starts a Ray with this process's CPUs, but at least `cpus`, and ends its processes with the context.

    A signal to the whole process group, or to all processes of a systemd unit, reaches only the command,
    which ends its trainings while Ray still runs. Ray's files are removed, except after an error. Raises
    MachineError if Ray does not start.
    """
    if fatal_messages := hopeless_limits():
        raise MachineError(f"Ray cannot start: {'; '.join(fatal_messages)}")
    folder, warnings = short_folder(default_folder(), announce), narrow_limits()
    for limit in warnings:
        announce(f"Ray may fail: {limit}")
    ensure_token()
    old_processes = _child_processes()
    os.environ.setdefault("RAY_worker_niceness", "0")  # keeps the caller's niceness; Ray adds 15
    for attempt in range(1, ATTEMPTS + 1):
        try:
            session = _start_ray(cpus, folder)
            break
        except BaseException as error:
            _shut_down_ray(old_processes)
            if not isinstance(error, Exception):
                raise
            load = f"load {os.getloadavg()[0]:.0f} on {usable_cpus()} CPUs"
            if attempt == ATTEMPTS:
                reason = "; ".join([*warnings, " ".join(str(error).split())[:300]])
                raise MachineError(f"Ray did not start in {ATTEMPTS} attempts ({load}): {reason}") from None
            announce(f"Ray did not start ({load}): it is started again")
    failed = False
    try:
        yield
    except Exception:
        failed = True
        raise
    finally:
        _shut_down_ray(old_processes)
        if not failed:
            _remove_session(session)


def _start_ray(cpus: int, folder: str | None) -> Path:
    """Starts Ray, whose processes have the signals in HELD blocked. Returns the folder of its files."""
    with _hold_signals(), kill_at_once(), on_loopback():
        # With "local", since a plain init would join a cluster that an earlier session left behind.
        context = ray.init(
            address="local",
            job_config=ImportPath(),
            num_cpus=max(cpus, usable_cpus()),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
        )
    return Path(context.address_info["session_dir"])


def _remove_session(session: Path) -> None:
    """Removes the files of a Ray that has ended, and the link `session_latest` if it points to them."""
    shutil.rmtree(session, ignore_errors=True)
    link = session.parent / "session_latest"
    if link.is_symlink() and not link.exists():
        link.unlink(missing_ok=True)


def _child_processes() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _shut_down_ray(old_processes: set[psutil.Process]) -> None:
    """Shuts Ray down; kills its remaining processes, which are not in `old_processes` and block SIGTERM."""
    new_processes = _child_processes() - old_processes
    for daemon in list(new_processes):
        with suppress(psutil.NoSuchProcess):
            new_processes |= set(daemon.children(recursive=True))
    ray.shutdown()
    for process in new_processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(new_processes, timeout=5)
