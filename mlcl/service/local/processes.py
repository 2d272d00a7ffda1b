"""Starts, finds and ends the processes of the service, with their children."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

GRACE = 10.0
"""Seconds between the request to end and the kill of a process."""
SAME_START = 60.0
"""Largest difference, in seconds, of two readings of a process's start: the clock may have been set.

The system does not reuse a process id so soon.
"""
LOOK_EVERY = 0.1
"""Seconds between two checks whether processes have ended."""

INHERITED = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NO_PROXY", "no_proxy",
    "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "XDG_CACHE_HOME",
}  # fmt: skip
PREFIXES = ("LC_", "OMP_", "MKL_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_")


@dataclass(frozen=True)
class Process:
    """A process by its id and its start (seconds since 1970), as ids are reused."""

    pid: int
    created: float

    def find(self) -> psutil.Process | None:
        """The process; None where it has ended."""
        try:
            found = psutil.Process(self.pid)
            ours = abs(found.create_time() - self.created) < SAME_START
            return found if ours and found.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def inherited_environment(*prefixes: str) -> dict[str, str]:
    """The environment for `start_process`: without the secrets of the caller, which may be in any variable.

    It has the variables in `INHERITED`, and those with one of the prefixes.
    """
    wanted = (*PREFIXES, *prefixes)
    return {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(wanted)}


def start_process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """Starts a process that outlives this one and its terminal; appends its output to `log`."""
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Process(child.pid, psutil.Process(child.pid).create_time())


def process_tree(processes: Iterable[Process]) -> list[psutil.Process]:
    """The processes that live, and all their descendants."""
    members: dict[int, psutil.Process] = {}
    for process in processes:
        found = process.find()
        if found is not None:
            members[found.pid] = found
            for child in _children(found):
                members.setdefault(child.pid, child)
    return list(members.values())


def record_tree(processes: Sequence[Process]) -> tuple[Process, ...]:
    """The first process, then its living descendants, to be stored: they are found even if it has ended."""
    known = dict.fromkeys(processes[:1])
    for member in process_tree(processes):
        try:
            known[Process(member.pid, member.create_time())] = None
        except psutil.Error:
            continue  # has just ended
    return tuple(known)


def end_processes(processes: Sequence[Process], grace: float = GRACE) -> int:
    """Ends a process tree and returns the number of processes.

    SIGTERM goes to the first process, which ends its children, after `grace` seconds to the others; the rest
    is killed.
    """
    members = process_tree(processes)
    first = [member for member in members if member.pid == processes[0].pid]
    for asked, seconds in ((first, grace), (members, grace / 2)):
        for member in asked:
            _signal(member, kill=False)
        _wait(asked, seconds)
    late = {*members, *process_tree(processes)}
    for member in late:
        _signal(member, kill=True)
    _wait(late, grace)
    return len(late)


def _wait(members: Iterable[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(_lives(member) for member in members) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)


def _lives(member: psutil.Process) -> bool:
    try:
        # A zombie holds neither port nor memory, and only its parent can remove it.
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _signal(member: psutil.Process, *, kill: bool) -> None:
    with suppress(psutil.Error):  # it may have ended just now
        member.kill() if kill else member.terminate()


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []
