"""The files that describe the running service: `state.json` and `cluster.yaml`. They have no secret."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml

from mlcl.config.cluster import ClusterConfig
from mlcl.config.section import validate
from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.ports import HOST
from mlcl.service.local.processes import Process, process_tree
from mlcl.service.local.settings import Settings


@dataclass(frozen=True)
class RunningServer:
    """A started server: its processes, the parent first; `scratch`: a folder to be removed with it."""

    processes: tuple[Process, ...]
    scratch: str = ""
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def lives(self) -> bool:
        """Whether the first process lives; it ends when another one fails."""
        return self.processes[0].find() is not None

    def left(self) -> bool:
        """Whether any process does."""
        return bool(process_tree(self.processes))


@dataclass(frozen=True)
class ServiceState:
    """What `state.json` holds: the settings, and the started servers by name."""

    settings: Settings
    servers: dict[str, RunningServer]


def read_state(folder: ServiceFolder) -> ServiceState | None:
    """Reads the state; None where there is no file. Raises UserError for an unreadable file."""
    try:
        text = folder.state.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        tree = json.loads(text)
        servers = {name: _running(entry) for name, entry in tree["servers"].items()}
        return ServiceState(Settings(**tree["settings"]), servers)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            "cannot be read; end what runs by hand and remove it", file=folder.state, found=error
        ) from None


def write_state(folder: ServiceFolder, state: ServiceState) -> None:
    """Replaces the file, whole or not at all."""
    tree = asdict(ServiceState(state.settings.shown, state.servers))
    replace_text(folder.state, json.dumps(tree, indent=2) + "\n")


def write_cluster(folder: ServiceFolder, settings: Settings) -> None:
    """Writes the cluster file, which `mlcl submit` reads. It names the files of secrets."""
    tree = {
        "ray": {
            "address": f"http://{HOST}:{settings.dashboard_port}",
            "token": {"file": str(folder.ray_token)},
        },
        "mlflow": {
            "uri": f"http://{HOST}:{settings.mlflow_port}",
            "username": {"file": str(folder.mlflow_user)},
            "password": {"file": str(folder.mlflow_password)},
        },
        "storage": str(folder.home),
        "python": sys.executable,
    }
    validate(ClusterConfig, tree, folder.cluster)
    replace_text(folder.cluster, yaml.safe_dump(tree, sort_keys=False))


def _running(entry: dict[str, Any]) -> RunningServer:
    processes = tuple(Process(**process) for process in entry["processes"])
    if not processes:
        raise ValueError("a server without a process")
    return RunningServer(processes, entry["scratch"], entry["started"])
