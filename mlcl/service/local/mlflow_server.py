"""The MLflow server of the local service."""

from __future__ import annotations

import importlib.util
import secrets
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from filelock import FileLock

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.local.folder import ServiceFolder, read_secret
from mlcl.service.local.ports import HOST
from mlcl.service.local.processes import inherited_environment
from mlcl.service.local.server import Problem, Server, check_auth
from mlcl.service.local.settings import Settings
from mlcl.tracking.moved_home import relocate_artifacts
from mlcl.tracking.network import Answer, basic_auth, get
from mlcl.tracking.uri import sqlite_file

SERVED = "mlflow-artifacts:/"
"""MLflow's word for artifacts that its server passes on."""

# To check a password takes a tenth of a second, and every request has one: the answer is cached for a minute.
# The server is one process, so that a changed password counts at once.
CONFIG = """[mlflow]
default_permission = READ
database_uri = sqlite:///{users}
admin_username = {user}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


class MlflowServer(Server):
    """`mlflow server` with its basic authentication."""

    name, title = "mlflow", "MLflow"

    def __init__(self, settings: Settings, folder: ServiceFolder) -> None:
        self._settings, self._folder = settings, folder
        self.log = folder.mlflow_log
        self.address = f"http://{HOST}:{settings.mlflow_port}"

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of the server."""
        return {"--mlflow-port": self._settings.mlflow_port}

    def prepare(self) -> None:
        """Writes the configuration, and a new store whole; corrects the store of a home that was moved.

        Raises UserError where MLflow's extra for authentication is missing.
        """
        if importlib.util.find_spec("flask_wtf") is None:
            raise UserError("MLflow's authentication is not installed: pip install 'mlflow[auth]'")
        folder = self._folder
        config = CONFIG.format(users=folder.mlflow_users, user=read_secret(folder.mlflow_user))
        replace_text(folder.mlflow_config, config, mode=0o600)
        _remove_unfinished(folder.mlflow_users)
        folder.mlflow_users.touch(mode=0o600)
        from mlcl.tracking.tracker import LOCK, make_tables

        with FileLock(folder.home / LOCK):
            make_tables(sqlite_file(self._settings.store), self._artifact_root() or SERVED)
            relocate_artifacts(self._settings.store, folder.home)

    def command(self, _scratch: str) -> list[str]:
        """The command that runs this interpreter's MLflow. It logs no requests: there are many a second."""
        server = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
        place = ["--host", HOST, "--port", str(self._settings.mlflow_port)]
        return [*server, *place, "--workers", "1", "--uvicorn-opts", "--no-access-log"]

    def environment(self) -> dict[str, str]:
        """The whole environment, with the store's URI and the first password: no other user can read it."""
        store, artifacts, root = self._settings.store, self._settings.artifacts, self._artifact_root()
        postgresql = ("PG",) if store.startswith("postgresql") else ()
        s3 = ("AWS_", "MLFLOW_S3_") if artifacts.startswith("s3://") else ()
        return {
            **inherited_environment(*postgresql, *s3),
            **({"MLFLOW_DEFAULT_ARTIFACT_ROOT": root} if root else {}),
            "MLFLOW_BACKEND_STORE_URI": store,
            "MLFLOW_ARTIFACTS_DESTINATION": artifacts,
            "MLFLOW_AUTH_CONFIG_PATH": str(self._folder.mlflow_config),
            "MLFLOW_AUTH_ADMIN_PASSWORD": read_secret(self._folder.mlflow_password),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(32),
            # Not used here; would take eight processes and most of the memory.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # A request to log holds one connection to the database and waits for a second. The server has 40
            # threads for requests: with no more than 40 connections they can wait for one another for ever.
            "MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "10",
            "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW": "40",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }

    def _artifact_root(self) -> str:
        """Where new experiments keep their artifacts; empty: with the server, which passes them on.

        Commands that open the same SQLite file without the server must find the artifacts too.
        """
        store, artifacts = self._settings.store, self._settings.artifacts
        shared = store.startswith("sqlite:") and not artifacts.startswith("s3://")
        return Path(artifacts).as_uri() if shared else ""

    def problem(self) -> Problem | None:
        """See `Server.problem`."""
        stranger = get(f"{self.address}/version")
        return check_auth(self._version(), stranger, self._folder.mlflow_password)

    def version(self) -> str:
        """The version of MLflow; empty without an answer."""
        answer = self._version()
        return answer.text.strip() if answer.status == 200 else ""

    def _version(self) -> Answer:
        user, password = read_secret(self._folder.mlflow_user), read_secret(self._folder.mlflow_password)
        return get(f"{self.address}/version", basic_auth(user, password))


def _remove_unfinished(users: Path) -> None:
    """Removes MLflow's file of users where a kill left it without the first one: it would refuse that."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(users)) as connection:
        if connection.execute("SELECT COUNT(*) FROM users").fetchone()[0]:
            return
    users.unlink(missing_ok=True)
