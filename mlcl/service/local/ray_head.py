"""The Ray head of the local service; all of its ports are on the loopback address."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder, read_secret
from mlcl.service.local.ports import HOST, free_port
from mlcl.service.local.processes import inherited_environment
from mlcl.service.local.server import RESTART, Problem, Server, check_auth
from mlcl.service.local.settings import Settings
from mlcl.service.runs.ray_folder import short_folder
from mlcl.tracking.network import Answer, get

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
"""The states of a job that has ended."""
SCRATCH = "mlcl-ray-"
"""Begins the name of the folder of Ray's files."""


class RayHead(Server):
    """`ray start --head --block`, which ends all of its processes at SIGTERM, or when one of them fails."""

    name, title = "ray", "Ray"

    def __init__(self, settings: Settings, folder: ServiceFolder) -> None:
        self._settings, self._token = settings, folder.ray_token
        self.log = folder.ray_log
        self.address = f"http://{HOST}:{settings.dashboard_port}"

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports of the head and of its dashboard; the system chooses all others."""
        return {"--ray-port": self._settings.ray_port, "--dashboard-port": self._settings.dashboard_port}

    def make_scratch(self, announce: Callable[[str], None]) -> str:
        """A folder for Ray's files, apart from those of another Ray on the machine.

        Raises UserError where none can be made, or the paths of Ray's sockets would be too long.
        """
        # Not under the home: the folder has sockets, whose paths must be short.
        place = os.environ.get("RAY_TMPDIR", "/tmp")
        usual = f"{place}/{SCRATCH}12345678"  # mkdtemp chooses eight characters
        place = short_folder(usual, announce) or place
        try:
            return tempfile.mkdtemp(prefix=SCRATCH, dir=place)
        except OSError as error:
            raise UserError("cannot be written", key="RAY_TMPDIR", found=f"{place} ({error})") from None

    def command(self, scratch: str) -> list[str]:
        """The command that runs this interpreter's Ray."""
        options = {
            "node-ip-address": HOST,
            "port": self._settings.ray_port,
            "dashboard-host": HOST,
            "dashboard-port": self._settings.dashboard_port,
            "dashboard-agent-listen-port": 0,
            "min-worker-port": 0,
            "max-worker-port": 0,
            "ray-client-server-port": free_port(),  # the system cannot choose it
            "temp-dir": scratch,
        }
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
        return [*start, "--disable-usage-stats", *(f"--{name}={value}" for name, value in options.items())]

    def environment(self) -> dict[str, str]:
        """The whole environment, which jobs and workers inherit."""
        return {
            **inherited_environment("RAY_memory_"),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # the caller's, not 15 more
            # Without it Ray takes the machine's own address for 127.0.0.1, and then listens on all of them.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }

    def problem(self) -> Problem | None:
        """See `Server.problem`; also where the node has not started."""
        found = check_auth(self._get("api/jobs/"), get(f"{self.address}/api/jobs/"), self._token)
        if found is None and not self.nodes():
            return Problem("has no living node", RESTART)
        return found

    def jobs(self) -> list[str] | None:
        """The ids of the jobs that have not ended; None without an answer."""
        answer = self._get("api/jobs/")
        if answer.status != 200:
            return None
        unended = [job for job in json.loads(answer.text) if job["status"] not in ENDED]
        return [job["submission_id"] or job["job_id"] for job in unended]

    def nodes(self) -> list[dict[str, Any]]:
        """The living nodes with their resources."""
        answer = self._get("api/v0/nodes?detail=1")
        if answer.status != 200:
            return []
        nodes = json.loads(answer.text)["data"]["result"]["result"]
        return [node for node in nodes if node["state"] == "ALIVE"]

    def version(self) -> str:
        """The version of Ray; empty without an answer."""
        answer = self._get("api/version")
        return str(json.loads(answer.text)["ray_version"]) if answer.status == 200 else ""

    def _get(self, page: str) -> Answer:
        return get(f"{self.address}/{page}", {"Authorization": f"Bearer {read_secret(self._token)}"})
