"""A Ray on this machine that lives and ends with its command."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import ray
from ray._common.utils import get_default_ray_temp_dir
from ray._private import services
from ray._private.ray_constants import SESSION_LATEST

from mlcl.errors import MachineError
from mlcl.service.runs.machine_limits import hopeless_limits, narrow_limits
from mlcl.service.runs.ray_folder import short_folder

ATTEMPTS = 2
"""Starts of Ray. A busy machine may exceed the 30 seconds that Ray gives itself."""
HELD = (signal.SIGTERM, signal.SIGHUP)
"""Signals that Ray's processes are not to get: Ray itself holds back Ctrl-C."""


@contextmanager
def local_ray(cpus: int, announce: Callable[[str], None]) -> Iterator[None]:
    """Starts a Ray with so many CPUs, and ends all of its processes on the way out.

    A signal to the whole process group, or to all processes of a systemd unit, reaches the command alone: it
    ends its trainings while Ray is alive. Ray's files stay where an error ended the command. Raises
    MachineError where Ray does not start.
    """
    if hopeless := hopeless_limits():
        raise MachineError(f"Ray cannot start: {'; '.join(hopeless)}")
    folder, narrow = short_folder(get_default_ray_temp_dir(), announce), narrow_limits()
    for limit in narrow:
        announce(f"Ray may fail: {limit}")
    before = _children()
    os.environ.setdefault("RAY_worker_niceness", "0")  # the caller's, not 15 more
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _signals_held():
                session = _init(cpus, folder)
            break
        except BaseException as error:
            _end(before)
            if not isinstance(error, Exception):
                raise
            load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
            if attempt == ATTEMPTS:
                reason = "; ".join([*narrow, " ".join(str(error).split())[:300]])
                raise MachineError(f"Ray did not start in {ATTEMPTS} attempts ({load}): {reason}") from None
            announce(f"Ray did not start ({load}): it is started again")
    failed = False
    try:
        yield
    except Exception:
        failed = True
        raise
    finally:
        _end(before)
        if not failed:
            _remove(session)


def _remove(session: Path) -> None:
    """Removes the files of a Ray that has ended, and the link to the latest if it was this one."""
    shutil.rmtree(session, ignore_errors=True)
    latest = session.parent / SESSION_LATEST
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


def _init(cpus: int, folder: str | None) -> Path:
    """Starts Ray; returns the folder of its files."""
    # "local": a plain init would join whatever cluster an earlier session left behind.
    context = ray.init(
        address="local",
        num_cpus=max(cpus, os.cpu_count() or 1),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=folder,
    )
    return Path(context.address_info["session_dir"])


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _end(before: set[psutil.Process]) -> None:
    """Ends Ray and kills what is left: its processes do not hear SIGTERM."""
    daemons = _children() - before
    left = [*daemons, *(child for daemon in daemons for child in _descendants(daemon))]
    ray.shutdown()
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=5)


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


class _Killed(services.ConsolePopen):
    """A process of Ray, which is killed where Ray terminates it: Ray would wait a second for each in vain."""

    def terminate(self) -> None:
        self.kill()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Processes that are started inside never get the signals, nor do theirs."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    original, services.ConsolePopen = services.ConsolePopen, _Killed
    try:
        yield
    finally:
        services.ConsolePopen = original
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
