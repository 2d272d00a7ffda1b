"""A Ray on this machine that lives and ends with its command."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import ray

from mlcl.errors import MachineError
from mlcl.service.process.limits import hopeless_limits, narrow_limits
from mlcl.service.ray.folder import default_folder, short_folder
from mlcl.service.ray.private import killed_at_once

ATTEMPTS = 2
"""Starts of Ray. A busy machine may exceed the 30 seconds that Ray gives itself."""
HELD = (signal.SIGTERM, signal.SIGHUP)
"""Signals that Ray's processes are not to get: Ray itself holds back Ctrl-C."""


@contextmanager
def local_ray(cpus: int, announce: Callable[[str], None]) -> Iterator[None]:
    """Starts a Ray with `cpus` CPUs, and ends all of its processes when the context ends.

    A signal to the whole process group, or to all processes of a systemd unit, reaches the command alone: it
    ends its trainings while Ray is alive. Ray's files stay where an error ended the command. Raises
    MachineError where Ray does not start.
    """
    if hopeless := hopeless_limits():
        raise MachineError(f"Ray cannot start: {'; '.join(hopeless)}")
    folder, narrow = short_folder(default_folder(), announce), narrow_limits()
    for limit in narrow:
        announce(f"Ray may fail: {limit}")
    before = _children()
    os.environ.setdefault("RAY_worker_niceness", "0")  # the caller's, not 15 more
    for attempt in range(1, ATTEMPTS + 1):
        try:
            session = _start(cpus, folder)
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


def _start(cpus: int, folder: str | None) -> Path:
    """Starts Ray, whose processes never get the signals in HELD. Returns the folder of its files."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        with killed_at_once():
            # "local": a plain init would join whatever cluster an earlier session left behind.
            context = ray.init(
                address="local",
                num_cpus=max(cpus, os.cpu_count() or 1),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=folder,
            )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return Path(context.address_info["session_dir"])


def _remove(session: Path) -> None:
    """Removes the files of a Ray that has ended, and the link to the latest if it was this one."""
    shutil.rmtree(session, ignore_errors=True)
    latest = session.parent / "session_latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink(missing_ok=True)


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _end(before: set[psutil.Process]) -> None:
    """Ends Ray and kills what is left: its processes do not hear SIGTERM."""
    left = _children() - before
    for daemon in list(left):
        with suppress(psutil.NoSuchProcess):
            left |= set(daemon.children(recursive=True))
    ray.shutdown()
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)
