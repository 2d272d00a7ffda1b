"""The settings of the local service: ports, MLflow's database and the place of its artifacts."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from sqlalchemy import create_engine, inspect, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder
from mlcl.tracking.uri import driver_error, without_password

LOWEST, HIGHEST = 1024, 65535
"""The range of ports that a user may take."""
KEY = "--store"
FORMS = "sqlite, sqlite:////FILE, postgresql+psycopg://USER@HOST/DATABASE"
CONNECT_SECONDS = 10
"""Seconds that a server may take to accept a connection."""


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
        return replace(self, store=without_password(self.store))


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
    if running is not None:
        _check_same(settings.shown, running)
    _check_ports(settings)
    return settings


def check(settings: Settings) -> None:
    """Raises UserError where the store or the place of the artifacts cannot be used."""
    check_store(settings.store)
    check_artifacts(settings.artifacts)


def _check_same(wanted: Settings, running: Settings) -> None:
    for field in fields(Settings):
        new, old = getattr(wanted, field.name), getattr(running, field.name)
        if new != old:
            raise UserError(
                "the service runs with another value; `mlcl down` ends it",
                key=_option(field.name),
                found=new,
                allowed=old,
            )


def _check_ports(settings: Settings) -> None:
    seen: dict[int, str] = {}
    for name in ("ray_port", "dashboard_port", "mlflow_port"):
        port = getattr(settings, name)
        if not LOWEST <= port <= HIGHEST:
            raise UserError("not a port", key=_option(name), found=port, allowed=f"{LOWEST} to {HIGHEST}")
        if port in seen:
            raise UserError(f"the same port as {seen[port]}", key=_option(name), found=port)
        seen[port] = _option(name)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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
        found = f"{without_password(uri)} ({driver_error(error, url.password)})"
        raise UserError("the store cannot be used", key=KEY, found=found) from None


def check_artifacts(place: str) -> None:
    """Raises UserError for a place that is neither S3 nor a folder that can be created."""
    if place.startswith("s3://"):
        if importlib.util.find_spec("boto3") is None:
            raise UserError("S3 needs boto3: pip install boto3", key="--artifacts", found=place)
        return
    if "://" in place:
        raise UserError("unknown kind of place", key="--artifacts", found=place, allowed="a folder, s3://...")
    try:
        Path(place).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError("cannot be made", key="--artifacts", found=f"{place} ({error})") from None
