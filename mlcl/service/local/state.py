"""What runs, as `state.json` has it: which processes, since when, with which settings. No secret is in it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.processes import Process, family
from mlcl.service.local.settings import Settings
from mlcl.tracking.atomic_files import replace_text


@dataclass(frozen=True)
class Running:
    """A server that was started: its processes, the root first; `scratch`: a folder that ends with it."""

    processes: tuple[Process, ...]
    scratch: str = ""
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def lives(self) -> bool:
        """Whether the first process does: it ends when one of the others fails."""
        return self.processes[0].find() is not None

    def left(self) -> bool:
        """Whether any process does."""
        return bool(family(self.processes))


@dataclass(frozen=True)
class ServiceState:
    """The servers that were started and not ended, by name."""

    settings: Settings
    servers: dict[str, Running]


def read_state(folder: ServiceFolder) -> ServiceState | None:
    """What is written down; None where nothing is. Raises UserError for a file that cannot be read."""
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
    """Replaces the file at once and whole."""
    tree = asdict(ServiceState(state.settings.shown, state.servers))
    replace_text(folder.state, json.dumps(tree, indent=2) + "\n")


def _running(entry: dict[str, Any]) -> Running:
    processes = tuple(Process(**process) for process in entry["processes"])
    if not processes:
        raise ValueError("a server without a process")
    return Running(processes, entry["scratch"], entry["started"])
