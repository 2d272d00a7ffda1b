"""The settings of `mlcl up`, and the folder of its secrets, databases and logs."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mlcl.errors import UserError
from mlcl.files import locked, replace_text
from mlcl.tracking.uri import driver_error, shown

ADMIN = "admin"
"""The first MLflow user."""
BYTES = 32
"""Random bytes of a secret."""
LOWEST, HIGHEST = 1024, 65535
"""The range of ports that a user may take."""
KEY = "--store"
FORMS = "sqlite, sqlite:////FILE, postgresql+psycopg://USER@HOST/DATABASE"
CONNECT_SECONDS = 10
"""Seconds that a database server may take to accept a connection."""


class ServiceFolder:
    """`HOME/service`, which only this user can read."""

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
        """Creates the folder and missing secrets. Raises UserError where it cannot be written."""
        if any(sign in str(self.home) for sign in "?#%"):
            raise UserError(
                "not a path for an SQLite store", key="--home", found=self.home, allowed="no ? # %"
            )
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
    def owned(self) -> Iterator[None]:
        """Locks the folder while the context is open. Raises UserError where another command has it."""
        with locked(self.path / ".lock") as mine:
            if not mine:
                raise UserError("another `mlcl up` or `mlcl down` is at work", file=self.path)
            yield


def read_secret(path: Path) -> str:
    """The file's first line; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, ValueError):
        return ""


@dataclass(frozen=True)
class UpOptions:
    """The options of `mlcl up`; None for those not given."""

    ray_port: int | None = None
    dashboard_port: int | None = None
    mlflow_port: int | None = None
    store: str | None = None
    artifacts: str | None = None


@dataclass(frozen=True)
class Settings:
    """The resolved settings. `store` may have a password: only `shown` may be stored."""

    store: str
    artifacts: str
    ray_port: int = 6379
    dashboard_port: int = 8265
    mlflow_port: int = 5000

    @property
    def shown(self) -> Settings:
        """The settings without the password."""
        return replace(self, store=shown(self.store))


def resolve_settings(options: UpOptions, folder: ServiceFolder, running: Settings | None) -> Settings:
    """The given options, completed by those of the running service or by the defaults.

    Raises UserError for an invalid option, and for one that differs from the running service.
    """
    base = running or Settings(store_uri("sqlite", folder), str(folder.home / "artifacts"))
    given = {key: value for key, value in asdict(options).items() if value is not None}
    if options.store is not None:
        given["store"] = store_uri(options.store, folder)
    if options.artifacts is not None and "://" not in options.artifacts:
        given["artifacts"] = str(Path(options.artifacts).expanduser().resolve())
    settings = replace(base, **given)
    ports: dict[int, str] = {}
    for name in (field.name for field in fields(Settings)):
        key, value = f"--{name.replace('_', '-')}", getattr(settings.shown, name)
        if running is not None and value != getattr(running, name):
            problem = "the service runs with another value; `mlcl down` ends it"
            raise UserError(problem, key=key, found=value, allowed=getattr(running, name))
        if not name.endswith("_port"):
            continue
        if not LOWEST <= value <= HIGHEST:
            raise UserError("not a port", key=key, found=value, allowed=f"{LOWEST} to {HIGHEST}")
        if value in ports:
            raise UserError(f"the same port as {ports[value]}", key=key, found=value)
        ports[value] = key
    return settings


def check_storage(settings: Settings) -> None:
    """Raises UserError where the store or the folder of the artifacts cannot be used."""
    check_store(settings.store)
    check_artifacts(settings.artifacts)


def store_uri(text: str, folder: ServiceFolder) -> str:
    """The URI of the database; `sqlite` is a file of the home. Raises UserError for another kind of store."""
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


def check_store(uri: str) -> None:
    """Raises UserError where the database cannot be opened. No message has its password."""
    if "***" in uri:
        raise UserError("its password was not written down: give the URL again", key=KEY, found=uri)
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
        found = f"{shown(uri)} ({driver_error(error, url.password)})"
        raise UserError("the store cannot be used", key=KEY, found=found) from None


def check_artifacts(target: str) -> None:
    """Raises UserError for a target that is neither S3 nor a folder that can be created."""
    key = "--artifacts"
    if target.startswith("s3://"):
        if importlib.util.find_spec("boto3") is None:
            raise UserError("S3 needs boto3: pip install boto3", key=key, found=target)
    elif "://" in target:
        raise UserError("unknown kind of place", key=key, found=target, allowed="a folder, s3://...")
    else:
        try:
            Path(target).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError("cannot be made", key=key, found=f"{target} ({error})") from None
