"""The status of the local service."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.mlflow_server import MlflowServer
from mlcl.service.local.ports import public_listeners
from mlcl.service.local.processes import process_tree
from mlcl.service.local.ray_head import RayHead
from mlcl.service.local.server import Problem
from mlcl.service.local.state import RunningServer, ServiceState, read_state

DEAD = Problem("is not running", "`mlcl up`")


@dataclass(frozen=True)
class ServerStatus:
    """The status of a server; `wrong` is empty where it is well. `outside`: addresses that are public."""

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
    """The status of the service; no servers where it is not up."""

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
        """Whether both servers are well."""
        return bool(self.servers) and not any(server.wrong for server in self.servers)


def service_status(home: Path) -> ServiceStatus:
    """Asks both servers. Raises UserError where `state.json` cannot be read."""
    folder = ServiceFolder(home)
    state = read_state(folder)
    if state is None:
        return ServiceStatus(str(folder.path))
    ray, mlflow = RayHead(state.settings, folder), MlflowServer(state.settings, folder)
    servers = tuple(_server(server, state) for server in (ray, mlflow))
    nodes = [] if servers[0].wrong else ray.nodes()
    return ServiceStatus(
        folder=str(folder.path),
        servers=servers,
        nodes=len(nodes),
        cpus=sum(node["resources_total"].get("CPU", 0.0) for node in nodes),
        gpus=sum(node["resources_total"].get("GPU", 0.0) for node in nodes),
        jobs=tuple((not servers[0].wrong and ray.jobs()) or ()),
        store=state.settings.store,
        artifacts=state.settings.artifacts,
    )


def mlflow_address(home: Path) -> str | None:
    """The address of this home's MLflow server; None where none runs."""
    folder = ServiceFolder(home)
    state = read_state(folder)
    running = None if state is None else state.servers.get(MlflowServer.name)
    if state is None or running is None or not running.lives():
        return None
    return MlflowServer(state.settings, folder).address


def _server(server: RayHead | MlflowServer, state: ServiceState) -> ServerStatus:
    running: RunningServer | None = state.servers.get(server.name)
    if running is None or not running.lives():
        return ServerStatus(server.name, server.address, str(server.log), DEAD.what, DEAD.mend)
    problem = server.problem()
    return ServerStatus(
        name=server.name,
        address=server.address,
        log=str(server.log),
        wrong=problem.what if problem else "",
        mend=problem.mend if problem else "",
        version="" if problem else server.version(),
        started=running.started,
        outside=public_listeners(process_tree(running.processes)),
    )
