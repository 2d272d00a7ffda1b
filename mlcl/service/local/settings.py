"""The settings of the local service: ports, store and artifacts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from mlcl.errors import UserError
from mlcl.service.local.folder import ServiceFolder
from mlcl.service.local.store import check_artifacts, check_store, store_uri
from mlcl.tracking.uri import without_password

LOWEST, HIGHEST = 1024, 65535
"""The range of ports that a user may take."""


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
