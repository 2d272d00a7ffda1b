"""Checks the servers that the environment names."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.tracking.network import basic_auth, connection_error, get, unreachable_reason
from mlcl.tracking.uri import shown, without_login, without_password

RAY = "RAY_ADDRESS"
LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")


def find_unreachable_servers(scope: Scope) -> Iterator[Finding]:
    """The tracking store, the study's database and the Ray cluster, where they do not answer."""
    servers = [(scope.uri, shown(scope.uri), "MLFLOW_TRACKING_URI")]
    if scope.study is not None:
        servers.append((scope.study, without_password(scope.study), "MLCL_STUDY or --study"))
    for uri, printed, key in servers:
        reason = unreachable_reason(uri)
        if reason:
            yield Finding(printed, f"does not answer ({reason})", f"start it, or correct {key}")
    is_server = scope.uri.startswith(("http://", "https://")) and "@" not in scope.uri
    if is_server and get(f"{without_login(scope.uri)}/version", mlflow_login()).status in (401, 403):
        names = " and ".join(LOGIN)
        why = "refuses this user and password" if mlflow_login() else "asks for a user and a password"
        yield Finding(shown(scope.uri), why, f"set {names}; docs/service.md says where `mlcl up` has them")
    host, port = ray_address()
    reason = connection_error(host, port) if host else ""
    if reason:
        yield Finding(
            f"{RAY}={os.environ[RAY]}",
            f"no Ray cluster answers ({reason})",
            f"start it, or unset {RAY} to use a Ray of the command's own",
        )


def mlflow_login() -> dict[str, str]:
    """The header of MLflow's client with user and password; empty where the environment has none."""
    user, password = (os.environ.get(name, "") for name in LOGIN)
    return basic_auth(user, password) if user else {}


def ray_address() -> tuple[str, int]:
    """Host and port of RAY_ADDRESS; an empty host for `auto` and other values without a port."""
    host, _, port = os.environ.get(RAY, "").removeprefix("ray://").rpartition(":")
    return (host, int(port)) if port.isdigit() else ("", 0)
