"""Servers that the environment names and that do not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.network import refused, silent
from mlcl.service.storage import hidden
from mlcl.tracking.uri import shown

RAY = "RAY_ADDRESS"


def find_silent(scope: Scope) -> Iterator[Finding]:
    """MLflow's, Ray's, and the study's database."""
    servers = [(scope.uri, shown(scope.uri), "MLFLOW_TRACKING_URI")]
    if scope.study is not None:
        servers.append((scope.study, hidden(scope.study), "MLCL_STUDY or --study"))
    for uri, printed, key in servers:
        reason = silent(uri)
        if reason:
            yield Finding(printed, f"does not answer ({reason})", f"start it, or correct {key}")
    host, port = ray_place()
    reason = refused(host, port) if host else ""
    if reason:
        yield Finding(
            f"{RAY}={os.environ[RAY]}",
            f"no Ray cluster answers ({reason})",
            f"start it, or unset {RAY} to use a Ray of the command's own",
        )


def ray_place() -> tuple[str, int]:
    """Host and port of RAY_ADDRESS; an empty host for "auto" and the like, where Ray knows where to look."""
    host, _, port = os.environ.get(RAY, "").removeprefix("ray://").rpartition(":")
    return (host, int(port)) if port.isdigit() else ("", 0)
