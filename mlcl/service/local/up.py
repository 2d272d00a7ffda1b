"""Starts the missing servers of the local service, and waits until both answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mlcl.service.local.down import discard
from mlcl.service.local.folder import ServiceFolder, read_secret
from mlcl.service.local.mlflow_server import MlflowServer
from mlcl.service.local.ports import check_free, public_listeners
from mlcl.service.local.processes import process_tree, record_tree, start_process
from mlcl.service.local.ray_head import RayHead
from mlcl.service.local.server import Server
from mlcl.service.local.settings import Settings, UpOptions, check, resolve_settings
from mlcl.service.local.state import RunningServer, ServiceState, read_state, write_cluster, write_state
from mlcl.service.runs.signals import StopRequest, stop_on_signal

PATIENCE = 300.0
"""Seconds that a server may take until it answers."""
LOOK_EVERY = 0.5
"""Seconds between two requests to it."""
LAST_LINES = 5
"""Lines of the log of a server that did not start that an error shows."""


class ServiceError(Exception):
    """A server did not start as it should."""


class EndedError(ServiceError):
    """A server ended while it started."""


@dataclass(frozen=True)
class UpResult:
    """The running service; `fresh`: the names of the servers that this call started."""

    settings: Settings
    folder: ServiceFolder
    servers: tuple[Server, ...]
    fresh: tuple[str, ...]
    user: str
    outside: list[str]


def servers_of(settings: Settings, folder: ServiceFolder) -> tuple[Server, ...]:
    """Both servers, Ray first."""
    return RayHead(settings, folder), MlflowServer(settings, folder)


def up(options: UpOptions, home: Path, announce: Callable[[str], None] = lambda _: None) -> UpResult:
    """Starts the servers that do not run, and returns the running service.

    Raises UserError before anything is started, ServiceError where a server does not start, and
    KeyboardInterrupt. The servers that this call started are then ended.
    """
    folder = ServiceFolder(home)
    folder.make()
    with folder.owned(), stop_on_signal(announce) as stop:
        state = read_state(folder)
        known = state.servers if state else {}
        living = {name: running for name, running in known.items() if running.lives()}
        settings = resolve_settings(options, folder, state.settings if state and living else None)
        servers = servers_of(settings, folder)
        missing = [server for server in servers if server.name not in living]
        dead = [known[server.name] for server in missing if server.name in known]
        _make_ready(settings, missing, dead, folder)
        with _rolled_back(folder, settings, living, stop) as running:
            for server in missing:
                announce(f"starting {server.title}: {server.log}")
                running[server.name] = _start(server, announce)
                write_state(folder, ServiceState(settings, running))
            for server in (*servers, *servers):  # the first may have died while the second was waited for
                try:
                    _wait_for(server, running[server.name], stop, announce)
                except EndedError as error:  # Ray gives itself 30 seconds, too few on a busy machine
                    announce(f"{error}; it is started again")
                    discard(folder, running[server.name])
                    server.prepare()
                    running[server.name] = _start(server, announce)
                    write_state(folder, ServiceState(settings, running))
                    _wait_for(server, running[server.name], stop, announce)
                running[server.name] = _whole(running[server.name])
            write_cluster(folder, settings)
            write_state(folder, ServiceState(settings, running))
    listening = public_listeners(
        process_tree(process for each in running.values() for process in each.processes)
    )
    fresh, user = _started(running, living), read_secret(folder.mlflow_user)
    return UpResult(settings, folder, servers, fresh, user, listening)


def _make_ready(
    settings: Settings, missing: Sequence[Server], dead: Sequence[RunningServer], folder: ServiceFolder
) -> None:
    """Checks and prepares a start. First ends what remains of dead servers, which may hold a port."""
    if any(server.name == MlflowServer.name for server in missing):
        check(settings)
    for running in dead:
        discard(folder, running)
    for server in missing:
        for key, port in server.ports.items():
            check_free(key, port)
        server.prepare()


@contextmanager
def _rolled_back(
    folder: ServiceFolder, settings: Settings, living: Mapping[str, RunningServer], stop: StopRequest
) -> Iterator[dict[str, RunningServer]]:
    """Yields the running servers; on an exception, ends those that were started meanwhile."""
    running = dict(living)
    try:
        yield running
    except BaseException:
        with stop.shielded():
            for name in _started(running, living):
                discard(folder, _whole(running.pop(name)))
            if running:
                write_state(folder, ServiceState(settings, running))
            else:
                folder.forget()
        raise


def _started(running: Mapping[str, RunningServer], living: Mapping[str, RunningServer]) -> tuple[str, ...]:
    """The names of the servers that this call started: by process, as one that lived may have died since."""
    before = {its.processes[0] for its in living.values()}
    return tuple(name for name, its in running.items() if its.processes[0] not in before)


def _start(server: Server, announce: Callable[[str], None]) -> RunningServer:
    scratch = server.make_scratch(announce)
    try:
        return RunningServer(
            (start_process(server.command(scratch), server.environment(), server.log),), scratch
        )
    except BaseException:
        if scratch:
            Path(scratch).rmdir()
        raise


def _whole(running: RunningServer) -> RunningServer:
    return replace(running, processes=record_tree(running.processes))


def _wait_for(
    server: Server, running: RunningServer, stop: StopRequest, announce: Callable[[str], None]
) -> None:
    deadline = time.monotonic() + PATIENCE
    problem = server.problem()
    if problem is not None:
        announce(f"waiting for {server.title} at {server.address}")
    while problem is not None:
        if stop():
            raise KeyboardInterrupt
        if not running.lives():
            ended = f"{server.title} ended while it started"
            raise EndedError(f"{ended}; {server.log} ends: {_end_of(server.log)}")
        if not problem.passing or time.monotonic() > deadline:
            raise ServiceError(f"{server.title} at {server.address} {problem.what}; {problem.mend}")
        time.sleep(LOOK_EVERY)
        problem = server.problem()


def _end_of(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " | ".join(line.strip() for line in lines[-LAST_LINES:])
