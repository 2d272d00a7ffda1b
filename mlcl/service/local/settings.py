"""The settings of `mlcl up`, the folder of its secrets, databases and logs, and its state file."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mlcl.errors import UserError
from mlcl.files import lock_file, replace_text
from mlcl.service.local.processes import Process, process_tree, public_listeners
from mlcl.tracking.uri import driver_error, hide_password

ADMIN = "admin"
"""The name of MLflow's first user."""
BYTES = 32
"""The number of random bytes of a secret."""
LOWEST, HIGHEST = 1024, 65535
"""The lowest and the highest port that an option may have."""
KEY = "--store"
FORMS = "sqlite, sqlite:////FILE, postgresql+psycopg://USER@HOST/DATABASE"
CONNECT_SECONDS = 10
"""Seconds to wait for a connection to a database server."""


class ServiceFolder:
    """The folder `HOME/service` with the files of the service, which only this user can read."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.path = self.home / "service"
        self.state = self.path / "state.json"
        self.cluster = self.path / "cluster.yaml"
        self.ray_token = self.path / "ray.token"
        self.ray_logs = self.path / "ray-logs"
        self.mlflow_user = self.path / "mlflow.user"
        self.mlflow_password = self.path / "mlflow.password"
        self.mlflow_config = self.path / "mlflow.ini"
        self.mlflow_users = self.path / "mlflow-users.db"

    def make(self) -> None:
        """Creates folder and secrets. Raises UserError if they cannot be written or the path has ? # or %."""
        if any(sign in str(self.home) for sign in "?#%"):
            problem = "not a path for an SQLite store"
            raise UserError(problem, key="--home", found=self.home, allowed="no ? # %")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for path, value in (
                (self.ray_token, secrets.token_hex(BYTES)),
                (self.mlflow_user, ADMIN),
                (self.mlflow_password, secrets.token_urlsafe(BYTES)),
            ):
                if read_secret(path):
                    path.chmod(0o600)
                else:
                    replace_text(path, value + "\n", mode=0o600)
        except OSError as error:
            raise UserError("cannot be written", key="--home", found=f"{self.path} ({error})") from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder while the context is open. Raises UserError if another command has locked it."""
        with lock_file(self.path / ".lock") as locked:
            if not locked:
                raise UserError("another `mlcl up` or `mlcl down` is running", file=self.path)
            yield


def read_secret(path: Path) -> str:
    """Returns the first line of a file; empty if the file is missing or cannot be read."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class Settings:
    """The settings of the service. `store` may contain a password: files get `without_password`."""

    store: str
    artifacts: str
    ray_port: int = 6379
    dashboard_port: int = 8265
    mlflow_port: int = 5000

    @property
    def without_password(self) -> Settings:
        """The settings without the password."""
        return replace(self, store=hide_password(self.store))


@dataclass(frozen=True)
class RunningServer:
    """A started server: its processes (the parent first), Ray's folder to remove, the start in ISO format."""

    processes: Annotated[tuple[Process, ...], Field(min_length=1)]
    scratch: str = ""
    started: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def lives(self) -> bool:
        """Whether the server runs. Only its first process is checked, which ends if another one fails."""
        return self.processes[0].find() is not None

    def public_addresses(self) -> list[str]:
        """Returns the addresses of the server that other machines may reach."""
        return public_listeners(process_tree(self.processes))


@dataclass(frozen=True)
class ServiceState:
    """The content of `state.json`: the settings without a password, and the started servers by name."""

    settings: Settings
    servers: dict[str, RunningServer]

    def living_servers(self) -> dict[str, RunningServer]:
        """Returns the servers that run, by name."""
        return {name: server for name, server in self.servers.items() if server.lives()}


STATE = TypeAdapter(ServiceState)


def read_state(folder: ServiceFolder) -> ServiceState | None:
    """Reads `state.json`; returns None if there is none. Raises UserError for an unreadable file."""
    try:
        return STATE.validate_json(folder.state.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        problem = "cannot be read; end what runs by hand and remove it"
        raise UserError(problem, file=folder.state, found=error) from None


def write_state(folder: ServiceFolder, state: ServiceState) -> None:
    """Writes `state.json`, without the password; removes it and the cluster file if no server is left."""
    if state.servers:
        public = replace(state, settings=state.settings.without_password)
        replace_text(folder.state, STATE.dump_json(public, indent=2).decode() + "\n")
    else:
        folder.cluster.unlink(missing_ok=True)
        folder.state.unlink(missing_ok=True)


def resolve_settings(
    options: Mapping[str, Any], folder: ServiceFolder, current_settings: Settings | None = None
) -> Settings:
    """Returns the settings with these options.

    Raises UserError for wrong ports or a wrong store, or if the settings differ from `current_settings`.
    """
    base = current_settings or Settings(store_uri("sqlite", folder), str(folder.home / "artifacts"))
    changes = dict(options)
    if "store" in changes:
        changes["store"] = store_uri(changes["store"], folder)
    if "artifacts" in changes and "://" not in changes["artifacts"]:
        changes["artifacts"] = str(Path(changes["artifacts"]).expanduser().resolve())
    settings = replace(base, **changes)
    ports: dict[int, str] = {}
    for name, value in asdict(settings.without_password).items():
        key = f"--{name.replace('_', '-')}"
        if current_settings is not None and value != getattr(current_settings, name):
            problem = "the service runs with another value; `mlcl down` ends it"
            raise UserError(problem, key=key, found=value, allowed=getattr(current_settings, name))
        if not name.endswith("_port"):
            continue
        if not LOWEST <= value <= HIGHEST:
            raise UserError("not a port", key=key, found=value, allowed=f"{LOWEST} to {HIGHEST}")
        if value in ports:
            raise UserError(f"the same port as {ports[value]}", key=key, found=value)
        ports[value] = key
    return settings


def store_uri(text: str, folder: ServiceFolder) -> str:
    """Returns the URI of MLflow's database: for `sqlite`, a file in the home, else the URI `text`.

    Raises UserError for a database other than SQLite and PostgreSQL.
    """
    if text == "sqlite":
        return f"sqlite:///{folder.home / 'mlflow.db'}"
    scheme, mark, rest = text.partition("://")
    if scheme == "postgresql":
        scheme = "postgresql+psycopg"
    if not mark or scheme not in ("sqlite", "postgresql+psycopg"):
        raise UserError("unknown kind of store", key=KEY, found=f"{scheme}...", allowed=FORMS)
    if scheme == "sqlite":
        # The server has another working folder than the command.
        return f"sqlite:///{Path(rest.removeprefix('/')).expanduser().resolve()}"
    return f"{scheme}://{rest}"


def check_storage(settings: Settings) -> None:
    """Creates the artifact folder. Raises UserError, without passwords, if it or the store cannot be used."""
    uri, target = settings.store, settings.artifacts
    if "***" in uri:
        raise UserError("its password was not saved: give the URL again", key=KEY, found=uri)
    try:
        url = make_url(uri)
        timeout = {} if url.drivername == "sqlite" else {"connect_timeout": CONNECT_SECONDS}
        engine = create_engine(url, connect_args=timeout)
        try:
            inspect(engine).get_table_names()
        finally:
            engine.dispose()
    except (ArgumentError, ValueError):
        # The password of a URL that cannot be parsed cannot be found either.
        raise UserError("not the URL of a database", key=KEY, allowed=FORMS) from None
    except (SQLAlchemyError, ImportError) as error:
        detail = f"{hide_password(uri)} ({driver_error(error, url.password)})"
        raise UserError("the store cannot be used", key=KEY, found=detail) from None
    key = "--artifacts"
    if target.startswith("s3://"):
        if importlib.util.find_spec("boto3") is None:
            raise UserError("S3 needs boto3: pip install 'mlcl[service]'", key=key, found=target)
    elif "://" in target:
        raise UserError("unknown kind of place", key=key, found=target, allowed="a folder, s3://...")
    else:
        try:
            Path(target).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError("cannot be made", key=key, found=f"{target} ({error})") from None
