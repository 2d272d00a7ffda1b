"""Ends the servers that `mlcl up` started."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.processes import end_processes
from mlcl.service.local.ray_head import RayHead
from mlcl.service.local.state import RunningServer, ServiceState, read_state

NAMED = 5
"""Most jobs that an error names."""


@dataclass(frozen=True)
class DownResult:
    """The names of the servers that were ended, and the number of their processes."""

    servers: tuple[str, ...]
    processes: int


def down(home: Path, *, force: bool = False) -> DownResult:
    """Ends the service. Secrets, databases and logs stay.

    Without `force` it raises UserError where jobs run, or where Ray does not answer.
    """
    folder = ServiceFolder(home)
    if not folder.state.exists():
        return DownResult((), 0)
    with folder.owned():
        state = read_state(folder)
        if state is None:
            return DownResult((), 0)
        if not force:
            _check_idle(state, folder)
        ended = {name: discard(folder, running) for name, running in state.servers.items()}
        folder.forget()
    return DownResult(tuple(name for name, count in ended.items() if count), sum(ended.values()))


def discard(folder: ServiceFolder, running: RunningServer) -> int:
    """Ends a server and removes its scratch folder, but keeps Ray's logs. Returns the number of processes."""
    count = end_processes(running.processes)
    if running.scratch:
        for logs in Path(running.scratch).glob("session_2*/logs"):
            folder.ray_logs.mkdir(exist_ok=True)
            shutil.move(logs, folder.ray_logs / logs.parent.name)
        shutil.rmtree(running.scratch, ignore_errors=True)
    return count


def _check_idle(state: ServiceState, folder: ServiceFolder) -> None:
    running = state.servers.get(RayHead.name)
    if running is None or not running.lives():
        return
    jobs = RayHead(state.settings, folder).jobs()
    if jobs is None:
        raise UserError("Ray does not tell which jobs run", allowed="--force ends it all the same")
    if jobs:
        more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
        raise UserError(
            f"jobs run: {', '.join(jobs[:NAMED])}{more}",
            allowed="`mlcl stop ID` for each, or --force, which ends them with the service",
        )
