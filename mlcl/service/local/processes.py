"""The processes of the service, and the ports at which they listen."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from mlcl.errors import UserError

HOST = "127.0.0.1"
"""The IP address at which the servers listen."""
GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL to a process."""
SAME_START = 60.0
"""The largest difference, in seconds, of two start times that are taken for those of the same process.

They may differ since the clock may have been set; the system does not reuse a process id so soon.
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
    """A process, identified by its id and its start time (seconds since 1970), since ids are reused."""

    pid: int
    created: float

    def find(self) -> psutil.Process | None:
        """Returns the running process; None if it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < SAME_START
        except psutil.Error:
            return None
        return process if same and _is_alive(process) else None


def inherited_environment(*prefixes: str) -> dict[str, str]:
    """Returns variables in INHERITED or with a prefix in PREFIXES or `prefixes`; others may be secret."""
    all_prefixes = (*PREFIXES, *prefixes)
    return {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(all_prefixes)
    }


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
    """Returns the given processes that still run, and all their descendants."""
    members: dict[int, psutil.Process] = {}
    for root in filter(None, (process.find() for process in processes)):
        members[root.pid] = root
        with suppress(psutil.Error):
            members |= {child.pid: child for child in root.children(recursive=True)}
    return list(members.values())


def record_tree(processes: Sequence[Process]) -> tuple[Process, ...]:
    """Returns the first process and all running ones of the tree, to find them after the first has ended."""
    records = dict.fromkeys(processes[:1])
    for member in process_tree(processes):
        with suppress(psutil.Error):  # it may have ended just now
            records[Process(member.pid, member.create_time())] = None
    return tuple(records)


def stop_commands(processes: Sequence[Process], module: str, patience: float) -> None:
    """Sends SIGTERM to the processes of a tree that run a Python module; waits until they have ended."""
    commands = []
    for member in process_tree(processes):
        with suppress(psutil.Error):
            if module in member.cmdline():
                member.terminate()
                commands.append(member)
    _wait_for_end(commands, patience)


def end_processes(processes: Sequence[Process], grace: float = GRACE) -> int:
    """Ends a process tree, and returns the number of its processes.

    SIGTERM is sent to the first process, which should end its children, and after at most `grace` seconds to
    all that still run. Processes that do not end are killed.
    """
    members = process_tree(processes)
    leaders = [member for member in members if member.pid == processes[0].pid]
    for targets, seconds in ((leaders, grace), (members, grace / 2)):
        for member in targets:
            with suppress(psutil.Error):
                member.terminate()
        _wait_for_end(targets, seconds)
    survivors = {*members, *process_tree(processes)}
    for member in survivors:
        with suppress(psutil.Error):
            member.kill()
    _wait_for_end(survivors, grace)
    return len(survivors)


def _wait_for_end(members: Iterable[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(map(_is_alive, members)) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY)


def _is_alive(member: psutil.Process) -> bool:
    """Whether the process runs. A zombie counts as ended, since it has neither ports nor memory."""
    try:
        return bool(member.is_running() and member.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def free_port() -> int:
    """Returns a port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def check_free(key: str, port: int) -> None:
    """Raises UserError if the port is taken; the error names the option `key` and the owner of the port."""
    with socket.socket() as probe:
        # Closed connections keep a port for a minute, which does not matter here.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            problem, allowed = f"port {port} is taken", "a port that is free"
            raise UserError(problem, key=key, found=_port_owner(port), allowed=allowed) from None


def _port_owner(port: int) -> str:
    """Returns name and id of the process that listens at the port, unless it is another user's."""
    with suppress(psutil.Error):
        for conn in psutil.net_connections("tcp"):
            if conn.status == psutil.CONN_LISTEN and conn.laddr and conn.laddr.port == port and conn.pid:
                return f"{psutil.Process(conn.pid).name()} (pid {conn.pid})"
    return "a process that this user cannot see"


def public_listeners(processes: Iterable[psutil.Process]) -> list[str]:
    """Returns the ports of processes that other machines may reach, as `NAME ADDRESS:PORT`."""
    listeners = set()
    for process in processes:
        with suppress(psutil.Error):
            addresses = [
                conn.laddr for conn in process.net_connections("tcp") if conn.status == psutil.CONN_LISTEN
            ]
            name = process.name()
            listeners |= {
                f"{name} {address.ip}:{address.port}"
                for address in addresses
                if not ip_address(address.ip.removeprefix("::ffff:")).is_loopback
            }
    return sorted(listeners)
