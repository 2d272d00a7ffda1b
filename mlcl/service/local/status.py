"""Whether the service is well, and what mends it where it is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.mlflow_server import MlflowServer
from mlcl.service.local.ports import outside
from mlcl.service.local.processes import family
from mlcl.service.local.ray_head import RayHead
from mlcl.service.local.server import Trouble
from mlcl.service.local.state import Running, ServiceState, read_state

DEAD = Trouble("is not running", "`mlcl up`")


@dataclass(frozen=True)
class ServerStatus:
    """One server: empty `wrong` where it is well. `outside` is where other machines may reach it."""

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
    """The whole service; no servers where it is not up."""

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


def look(home: Path) -> ServiceStatus:
    """Asks both servers; changes nothing. Raises UserError where `state.json` cannot be read."""
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


def pages(home: Path) -> str | None:
    """Where this home's MLflow server shows its pages; None where none runs."""
    folder = ServiceFolder(home)
    state = read_state(folder)
    running = None if state is None else state.servers.get(MlflowServer.name)
    if state is None or running is None or not running.lives():
        return None
    return MlflowServer(state.settings, folder).address


def _server(server: RayHead | MlflowServer, state: ServiceState) -> ServerStatus:
    running: Running | None = state.servers.get(server.name)
    if running is None or not running.lives():
        return ServerStatus(server.name, server.address, str(server.log), DEAD.what, DEAD.mend)
    trouble = server.trouble()
    return ServerStatus(
        name=server.name,
        address=server.address,
        log=str(server.log),
        wrong=trouble.what if trouble else "",
        mend=trouble.mend if trouble else "",
        version="" if trouble else server.version(),
        started=running.started,
        outside=outside(family(running.processes)),
    )
