"""Starts and ends the local service and reports its status. `state.json` has the running servers."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlcl.config.cluster import ClusterConfig
from mlcl.config.safe_yaml import dump_yaml
from mlcl.config.section import validate
from mlcl.errors import MachineError, UserError
from mlcl.files import replace_text
from mlcl.service.local.processes import check_free, end_processes, record_tree, start_process, stop_commands
from mlcl.service.local.servers import (
    MLFLOW,
    RAY,
    Server,
    create_ray_scratch,
    mlflow_server,
    ray_head,
    ray_jobs,
    ray_nodes,
    servers_of,
)
from mlcl.service.local.settings import (
    RunningServer,
    ServiceFolder,
    ServiceState,
    read_secret,
    read_state,
    resolve_settings,
    write_state,
)
from mlcl.service.process.signals import StopRequest, stop_on_signal
from mlcl.service.ray.references import DRIVER

PATIENCE = 300.0
"""Seconds to wait for the first answer of a server that was started."""
LOOK_EVERY = 0.5
"""Seconds between two requests to a server that has not answered yet."""
LAST_LINES = 5
"""The number of last lines that an error shows of the log of a server that did not start."""
JOB_PATIENCE = 30.0
"""Seconds to wait, before the servers are ended, until jobs have written checkpoint and state."""
NAMED = 5
"""The largest number of jobs that an error names."""

Announce = Callable[[str], None]


@dataclass(frozen=True)
class UpResult:
    """The running service; `ray` and `mlflow` are addresses, `outside` lists those open to other machines."""

    ray: str
    mlflow: str
    started: tuple[str, ...]
    user: str
    password_file: Path
    token_file: Path
    cluster_file: Path
    store: str
    artifacts: str
    outside: list[str]


def start_service(options: Mapping[str, Any], home: Path, announce: Announce = lambda _: None) -> UpResult:
    """Starts the servers that do not run, waits until both answer, and returns the running service.

    `options` are fields of `Settings`. Raises UserError before anything is started. If a server does not
    start (MachineError), or after a signal (KeyboardInterrupt), the servers that this call started are ended.
    """
    folder = ServiceFolder(home)
    folder.make()
    with folder.lock(), stop_on_signal(announce) as stop:
        old_state = read_state(folder)
        living_servers = old_state.living_servers() if old_state else {}
        settings = resolve_settings(
            options, folder, old_state.settings if old_state and living_servers else None
        )
        servers = servers_of(settings, folder)
        missing_servers = [server for server in servers if server.name not in living_servers]
        for server in missing_servers:  # processes of a dead server may hold a port
            if old_state and server.name in old_state.servers:
                discard(folder, old_state.servers[server.name])
        for server in missing_servers:
            for option, port in server.ports.items():
                check_free(option, port)
            server.prepare()
        state = ServiceState(settings, dict(living_servers))
        try:
            for server in missing_servers:
                announce(f"starting {server.title}: {server.log}")
                _start_server(server, state, folder, announce)
            for server in (*servers, *servers):  # the first may have died during the wait for the second
                if failure := _wait_for_server(server, state, stop, announce):
                    # Ray's time limit for its start, 30 seconds, is too short on a busy machine.
                    announce(f"{failure}; it is started again")
                    discard(folder, state.servers[server.name])
                    server.prepare()
                    _start_server(server, state, folder, announce)
                    if failure := _wait_for_server(server, state, stop, announce):
                        raise MachineError(failure)
            _write_cluster_file(folder, *servers)
            write_state(folder, state)
        except BaseException:
            with stop.shielded():
                for name in _started_servers(state, living_servers):
                    discard(folder, state.servers.pop(name))
                write_state(folder, state)
            raise
    return UpResult(
        ray=servers[0].address,
        mlflow=servers[1].address,
        started=_started_servers(state, living_servers),
        user=read_secret(folder.mlflow_user),
        password_file=folder.mlflow_password,
        token_file=folder.ray_token,
        cluster_file=folder.cluster,
        store=settings.without_password.store,
        artifacts=settings.artifacts,
        outside=sorted(
            {listener for server in state.servers.values() for listener in server.public_addresses()}
        ),
    )


def _started_servers(state: ServiceState, living_servers: Mapping[str, RunningServer]) -> tuple[str, ...]:
    """Returns the names of the servers in `state` that did not live before `start_service` started them."""
    old_processes = {server.processes[0] for server in living_servers.values()}
    return tuple(name for name, server in state.servers.items() if server.processes[0] not in old_processes)


def _start_server(server: Server, state: ServiceState, folder: ServiceFolder, announce: Announce) -> None:
    scratch = create_ray_scratch(announce) if server.name == RAY else ""
    command = [*server.command, *([f"--temp-dir={scratch}"] if scratch else [])]
    process = start_process(command, server.environment, server.log)
    state.servers[server.name] = RunningServer((process,), scratch)
    write_state(folder, state)


def _wait_for_server(server: Server, state: ServiceState, stop: StopRequest, announce: Announce) -> str:
    """Waits until a server answers without a problem, then adds its child processes to the state.

    Returns an empty text, or the end of its log if its process has ended. Raises MachineError for a wrong
    answer or none in time, and KeyboardInterrupt after a signal.
    """
    running_server = state.servers[server.name]
    deadline = time.monotonic() + PATIENCE
    problem = server.problem()
    if problem is not None:
        announce(f"waiting for {server.title} at {server.address}")
    while problem is not None:
        if stop():
            raise KeyboardInterrupt
        if not running_server.lives():
            lines = server.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            end = " | ".join(line.strip() for line in lines[-LAST_LINES:])
            return f"{server.title} ended while it started; {server.log} ends: {end}"
        if not problem.passing or time.monotonic() > deadline:
            raise MachineError(f"{server.title} at {server.address} {problem.what}; {problem.mend}")
        time.sleep(LOOK_EVERY)
        problem = server.problem()
    state.servers[server.name] = replace(running_server, processes=record_tree(running_server.processes))
    return ""


def _write_cluster_file(folder: ServiceFolder, ray: Server, mlflow: Server) -> None:
    """Writes the cluster file, which `mlcl submit` reads. It names the files of secrets."""
    tree = {
        "ray": {"address": ray.address, "token": {"file": str(ray.secret)}},
        "mlflow": {
            "uri": mlflow.address,
            "username": {"file": str(folder.mlflow_user)},
            "password": {"file": str(mlflow.secret)},
        },
        "storage": str(folder.home),
        "python": sys.executable,
    }
    validate(ClusterConfig, tree, folder.cluster)
    replace_text(folder.cluster, dump_yaml(tree))


@dataclass(frozen=True)
class DownResult:
    """The names of the servers that `end_service` ended, and the number of their processes."""

    servers: tuple[str, ...]
    processes: int


def end_service(home: Path, *, force: bool = False) -> DownResult:
    """Ends the service, after the commands of its jobs; keeps secrets, databases and logs.

    Raises UserError if jobs run or Ray does not list its jobs, unless `force` is set.
    """
    folder = ServiceFolder(home)
    if not folder.state.exists():
        return DownResult((), 0)
    with folder.lock():
        if (state := read_state(folder)) is None:
            return DownResult((), 0)
        if not force and RAY in state.living_servers():
            _check_idle(ray_jobs(ray_head(state.settings, folder)))
        # Without Ray and MLflow, a job's command could write neither its checkpoint nor its state.
        for server in state.servers.values():
            stop_commands(server.processes, DRIVER, JOB_PATIENCE)
        counts = {name: discard(folder, server) for name, server in state.servers.items()}
        write_state(folder, replace(state, servers={}))
    return DownResult(tuple(name for name, count in counts.items() if count), sum(counts.values()))


def discard(folder: ServiceFolder, server: RunningServer) -> int:
    """Ends a server, moves Ray's logs to the service's folder, and returns the number of ended processes."""
    count = end_processes(server.processes)
    if server.scratch:
        for logs in Path(server.scratch).glob("session_2*/logs"):
            folder.ray_logs.mkdir(exist_ok=True)
            shutil.move(logs, folder.ray_logs / logs.parent.name)
        shutil.rmtree(server.scratch, ignore_errors=True)
    return count


def _check_idle(jobs: Sequence[str] | None) -> None:
    if jobs is None:
        raise UserError("Ray does not report which jobs are running", allowed="--force stops it anyway")
    if jobs:
        suffix = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
        allowed = "`mlcl stop ID` for each, or --force, which ends them with the service"
        raise UserError(f"jobs run: {', '.join(jobs[:NAMED])}{suffix}", allowed=allowed)


@dataclass(frozen=True)
class ServerStatus:
    """The status of one server: `wrong` is its problem, `mend` the cure, `outside` as in `UpResult`."""

    name: str
    address: str
    log: str
    wrong: str = ""
    mend: str = ""
    version: str = ""
    started: str = ""
    outside: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ServiceStatus:
    """The status of the service; `servers` is empty if the service was not started."""

    folder: str
    servers: tuple[ServerStatus, ...] = ()
    nodes: int = 0
    cpus: float = 0.0
    gpus: float = 0.0
    jobs: tuple[str, ...] = ()
    store: str = ""
    artifacts: str = ""

    @property
    def healthy(self) -> bool:
        """Whether both servers run without a problem."""
        return bool(self.servers) and not any(server.wrong for server in self.servers)


def service_status(home: Path) -> ServiceStatus:
    """Asks both servers for their status. Raises UserError if `state.json` cannot be read."""
    folder = ServiceFolder(home)
    state = read_state(folder)
    if state is None:
        return ServiceStatus(str(folder.path))
    ray, mlflow = servers_of(state.settings, folder)
    living_servers = state.living_servers()
    servers = tuple(_server_status(server, living_servers.get(server.name)) for server in (ray, mlflow))
    answers = not servers[0].wrong
    nodes = ray_nodes(ray) if answers else []
    return ServiceStatus(
        folder=str(folder.path),
        servers=servers,
        nodes=len(nodes),
        cpus=sum(node["resources_total"].get("CPU", 0.0) for node in nodes),
        gpus=sum(node["resources_total"].get("GPU", 0.0) for node in nodes),
        jobs=tuple((answers and ray_jobs(ray)) or ()),
        store=state.settings.store,
        artifacts=state.settings.artifacts,
    )


def _server_status(server: Server, running_server: RunningServer | None) -> ServerStatus:
    server_fields = (server.name, server.address, str(server.log))
    if running_server is None:
        return ServerStatus(*server_fields, "is not running", "`mlcl up`")
    problem = server.problem()
    details = (problem.what, problem.mend, "") if problem else ("", "", server.version())
    return ServerStatus(*server_fields, *details, running_server.started, running_server.public_addresses())


def mlflow_address(home: Path) -> str | None:
    """Returns the address of this home's MLflow server; None if it does not run."""
    folder = ServiceFolder(home)
    state = read_state(folder)
    if state is None or MLFLOW not in state.living_servers():
        return None
    return mlflow_server(state.settings, folder).address
