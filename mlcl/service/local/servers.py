"""The two servers of the local service, Ray's head and MLflow: how to start them and send them requests."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.local.processes import HOST, free_port, inherited_environment
from mlcl.service.local.settings import ServiceFolder, Settings, check_storage, read_secret
from mlcl.service.process.limits import usable_cpus
from mlcl.service.ray.folder import short_folder
from mlcl.tracking.mlflow_private import make_tables, relocate_artifacts, store_lock
from mlcl.tracking.network import Response, basic_auth, get
from mlcl.tracking.uri import sqlite_file

RAY, MLFLOW = "ray", "mlflow"
"""The names of the servers."""
RESTART = "`mlcl down --force`, then `mlcl up`"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
"""The states of a Ray job that has ended."""
SCRATCH = "mlcl-ray-"
"""The prefix of the name of the folder of Ray's files."""
SERVED = "mlflow-artifacts:/"
"""MLflow's URI scheme for artifacts that clients read and write through the server."""
# To check a password takes a tenth of a second, and every request has one: the answer is cached for a minute.
# The server is a single process, so a changed password takes effect at once.
CONFIG = """[mlflow]
default_permission = READ
database_uri = sqlite:///{users}
admin_username = {user}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


@dataclass(frozen=True)
class ServerProblem:
    """A problem of a server (`what`) and its remedy (`mend`).

    A problem that is `passing` may end while the server starts.
    """

    what: str
    mend: str
    passing: bool = True


@dataclass(frozen=True)
class Server:
    """A server of the service: how it is started, and how requests are sent to it.

    Attributes:
        title: The name that is shown to the user.
        probe: The path of a page that the server must refuse without the secret.
        login: The HTTP header that has the secret of the file `secret`.
        ports: The ports that must be free, by the option that sets them.
        command: The command line. It contains no secret, since other users can see it.
        environment: All environment variables of the process.
        prepare: Writes the configuration before the start; raises UserError if a requirement is missing.
    """

    name: str
    title: str
    address: str
    log: Path
    probe: str
    secret: Path
    login: dict[str, str]
    ports: dict[str, int]
    command: list[str]
    environment: dict[str, str]
    prepare: Callable[[], None] = lambda: None

    def get(self, page: str) -> Response:
        """Requests a page with the secret, and returns the answer."""
        return get(f"{self.address}/{page}", self.login)

    def problem(self) -> ServerProblem | None:
        """Returns a problem or None. The server must accept only its secret; Ray must have a living node."""
        answer = self.get(self.probe)
        if answer.status == 0:
            return ServerProblem(f"does not answer ({answer.text})", RESTART)
        if answer.status in (401, 403):
            remedy = f"write the present one into {self.secret}"
            return ServerProblem(f"refuses the secret in {self.secret}", remedy, passing=False)
        if answer.status != 200:
            return ServerProblem(f"answers with status {answer.status}", "see its log")
        if get(f"{self.address}/{self.probe}").status == 200:
            return ServerProblem("answers without a secret", RESTART, passing=False)
        if self.name == RAY and not ray_nodes(self):
            return ServerProblem("has no living node", RESTART)
        return None

    def version(self) -> str:
        """Returns the version of the server; empty if the server does not answer."""
        if self.name == RAY:
            return str(_get_json(self, "api/version", {}).get("ray_version", ""))
        answer = self.get("version")
        return answer.text.strip() if answer.status == 200 else ""


def servers_of(settings: Settings, folder: ServiceFolder) -> tuple[Server, Server]:
    """Returns the servers of the service with these settings: Ray's head, then MLflow."""
    return ray_head(settings, folder), mlflow_server(settings, folder)


def ray_head(settings: Settings, folder: ServiceFolder) -> Server:
    """Returns Ray's head, `ray start --head --block`, with all of its ports on the loopback address.

    It ends all of its processes at SIGTERM, or when one of them fails. The caller must add the option
    `--temp-dir` with a folder from `create_ray_scratch` to the command.
    """
    options = {
        "node-ip-address": HOST,
        "port": settings.ray_port,
        "num-cpus": usable_cpus(),
        "dashboard-host": HOST,
        "dashboard-port": settings.dashboard_port,
        "dashboard-agent-listen-port": 0,
        "min-worker-port": 0,
        "max-worker-port": 0,
        "ray-client-server-port": free_port(),  # the system cannot choose it
    }
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    return Server(
        name=RAY,
        title="Ray",
        address=f"http://{HOST}:{settings.dashboard_port}",
        log=folder.path / "ray.log",
        probe="api/jobs/",
        secret=folder.ray_token,
        login={"Authorization": f"Bearer {read_secret(folder.ray_token)}"},
        ports={"--ray-port": settings.ray_port, "--dashboard-port": settings.dashboard_port},
        command=[*start, "--disable-usage-stats", *(f"--{key}={value}" for key, value in options.items())],
        environment={  # jobs and workers inherit it
            **inherited_environment("RAY_memory_"),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder.ray_token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # keeps the caller's niceness; Ray adds 15
            # Without it Ray takes the machine's own address for 127.0.0.1, and then listens on all of them.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        },
    )


def create_ray_scratch(announce: Callable[[str], None]) -> str:
    """Creates a new folder for Ray's files, with a path short enough for sockets, and returns the path."""
    # Not under the home: the folder has sockets, whose paths must be short.
    parent = os.environ.get("RAY_TMPDIR") or "/tmp"
    path = f"{parent}/{SCRATCH}12345678"  # mkdtemp chooses eight characters
    parent = short_folder(path, announce) or parent
    try:
        return tempfile.mkdtemp(prefix=SCRATCH, dir=parent)
    except OSError as error:
        raise UserError("cannot be written", key="RAY_TMPDIR", found=f"{parent} ({error})") from None


def ray_jobs(head: Server) -> list[str] | None:
    """Returns the ids of Ray's jobs that have not ended; None if the head does not answer."""
    jobs = _get_json(head, "api/jobs/", None)
    if jobs is None:
        return None
    return [job["submission_id"] or job["job_id"] for job in jobs if job["status"] not in ENDED]


def ray_nodes(head: Server) -> list[dict[str, Any]]:
    """Returns the living nodes of Ray, with their resources, as the dicts of Ray's API."""
    answer = _get_json(head, "api/v0/nodes?detail=1", None)
    nodes = answer["data"]["result"]["result"] if answer else []
    return [node for node in nodes if node["state"] == "ALIVE"]


def _get_json(server: Server, page: str, default: Any) -> Any:
    answer = server.get(page)
    return json.loads(answer.text) if answer.status == 200 else default


def mlflow_server(settings: Settings, folder: ServiceFolder) -> Server:
    """Returns MLflow's server with basic authentication. It does not log requests, which are many."""
    start = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", "--workers", "1"]
    address = ["--host", HOST, "--port", str(settings.mlflow_port)]
    user, password = read_secret(folder.mlflow_user), read_secret(folder.mlflow_password)
    postgresql = ("PG",) if settings.store.startswith("postgresql") else ()
    s3 = ("AWS_", "MLFLOW_S3_") if settings.artifacts.startswith("s3://") else ()
    root = _artifact_root(settings)
    return Server(
        name=MLFLOW,
        title="MLflow",
        address=f"http://{HOST}:{settings.mlflow_port}",
        log=folder.path / "mlflow.log",
        probe="version",
        secret=folder.mlflow_password,
        login=basic_auth(user, password),
        ports={"--mlflow-port": settings.mlflow_port},
        command=[*start, *address, "--uvicorn-opts", "--no-access-log"],
        environment={  # no other user can read it
            **inherited_environment(*postgresql, *s3),
            **({"MLFLOW_DEFAULT_ARTIFACT_ROOT": root} if root else {}),
            "MLFLOW_BACKEND_STORE_URI": settings.store,
            "MLFLOW_ARTIFACTS_DESTINATION": settings.artifacts,
            "MLFLOW_AUTH_CONFIG_PATH": str(folder.mlflow_config),
            "MLFLOW_AUTH_ADMIN_PASSWORD": password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
            # Job execution is not used here, and would take eight processes and most of the memory.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # A request to log holds one connection to the database and waits for a second. The server has 40
            # threads for requests: with 40 connections or fewer they can wait for one another for ever.
            "MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "10",
            "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW": "40",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        prepare=partial(_prepare_mlflow, settings, folder),
    )


def _prepare_mlflow(settings: Settings, folder: ServiceFolder) -> None:
    """Writes the configuration of MLflow's server, and creates or corrects the tables of its store."""
    check_storage(settings)
    if importlib.util.find_spec("flask_wtf") is None:
        raise UserError("MLflow's authentication is not installed: pip install 'mlcl[service]'")
    config = CONFIG.format(users=folder.mlflow_users, user=read_secret(folder.mlflow_user))
    replace_text(folder.mlflow_config, config, mode=0o600)
    _remove_empty_users(folder.mlflow_users)
    folder.mlflow_users.touch(mode=0o600)
    import mlcl.tracking.tracker  # noqa: F401 # sets what MLflow reads when it is imported

    with store_lock(settings.store, folder.home):
        make_tables(sqlite_file(settings.store), _artifact_root(settings) or SERVED)
        relocate_artifacts(settings.store, folder.home)


def _artifact_root(settings: Settings) -> str:
    """Returns the URI for artifacts of new experiments; empty if clients use artifacts through the server.

    With an SQLite store it is a local folder, since commands open the store's file without the server, too.
    """
    shared = settings.store.startswith("sqlite:") and not settings.artifacts.startswith("s3://")
    return Path(settings.artifacts).as_uri() if shared else ""


def _remove_empty_users(users: Path) -> None:
    """Removes the database of users if a killed start left it without users, which MLflow would refuse."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(users)) as connection:
        if connection.execute("SELECT COUNT(*) FROM users").fetchone()[0]:
            return
    users.unlink(missing_ok=True)
