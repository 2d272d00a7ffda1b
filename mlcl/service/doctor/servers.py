"""Checks of the machine and of servers: limits, versions, addresses, and whether the servers answer."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from mlcl.service.doctor.checks import Finding, Scope
from mlcl.service.process.limits import narrow_limits
from mlcl.service.ray.address import FORMS, RAY, ask_cluster, is_dashboard, is_refused, ray_address
from mlcl.service.ray.folder import default_folder
from mlcl.service.ray.private import TESTED as TESTED_RAY
from mlcl.tracking.mlflow_private import TESTED as TESTED_MLFLOW
from mlcl.tracking.network import basic_auth, connection_error, get, host_and_port, unreachable_reason
from mlcl.tracking.uri import hide_password, without_login
from mlcl.training.context import unusable_gpu

LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
PACKAGE = "mlcl"
TESTED = {"ray": TESTED_RAY, "mlflow": TESTED_MLFLOW}
"""The tested versions of packages of which mlcl uses private parts."""


def find_narrow_limits(_scope: Scope) -> Iterator[Finding]:
    """Yields limits of the shell and the machine, such as free memory, that are too low for Ray."""
    for limit in narrow_limits():
        yield Finding("this machine", limit, "raise it, or make room, before a sweep, a table or `mlcl up`")


def find_unreachable_servers(scope: Scope) -> Iterator[Finding]:
    """Yields findings if the tracking store or Ray cluster does not answer, or MLflow refuses the login."""
    if reason := unreachable_reason(scope.uri):
        cure = "start it, or correct MLFLOW_TRACKING_URI"
        yield Finding(hide_password(scope.uri), f"does not answer ({reason})", cure)
    is_server = scope.uri.startswith(("http://", "https://")) and "@" not in scope.uri
    by_password = is_server and not os.environ.get("MLFLOW_TRACKING_TOKEN")
    if by_password and get(f"{without_login(scope.uri)}/version", mlflow_login()).status in (401, 403):
        names = " and ".join(LOGIN)
        problem = "refuses this user and password" if mlflow_login() else "asks for a user and a password"
        yield Finding(
            hide_password(scope.uri), problem, f"set {names}; docs/service.md says where `mlcl up` has them"
        )
    host, port = ray_address()
    if is_dashboard(os.environ.get(RAY, "")):
        yield Finding(f"{RAY}={os.environ[RAY]}", "the address of a dashboard", f"give {FORMS}")
    elif host and (reason := connection_error(host, port)):
        cure = f"start it, or unset {RAY} to use a Ray of the command's own"
        yield Finding(f"{RAY}={os.environ[RAY]}", f"no Ray cluster answers ({reason})", cure)


def mlflow_login() -> dict[str, str]:
    """Returns the HTTP header with MLflow's user and password; empty if the environment has no user."""
    user, password = (os.environ.get(name, "") for name in LOGIN)
    return basic_auth(user, password) if user else {}


def find_other_versions(_scope: Scope) -> Iterator[Finding]:
    """Yields versions of Python and packages that mlcl does not allow; untested Ray and MLflow are notes."""
    python = metadata.metadata(PACKAGE)["Requires-Python"] or ""
    if platform.python_version() not in SpecifierSet(python, prereleases=True):
        yield Finding(f"Python {platform.python_version()}", f"{PACKAGE} needs {python}", "use such a Python")
    for line in metadata.requires(PACKAGE) or []:
        requirement = Requirement(line)
        version = _installed_version(requirement.name)
        is_optional = requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
        if requirement.name == PACKAGE or (is_optional and version is None):
            continue
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            subject = f"{requirement.name} {version or 'is not installed'}"
            specifier = f"{requirement.name}{requirement.specifier}"
            yield Finding(subject, f"{PACKAGE} needs {specifier}", f"pip install '{specifier}'")
    for name, tested in TESTED.items():
        version = _installed_version(name)
        if version is not None and not SpecifierSet(tested).contains(version, prereleases=True):
            cure = f"if something fails, pip install '{name}{tested}'"
            yield Finding(
                f"{name} {version}", f"{PACKAGE} uses parts of {tested} that may change", cure, note=True
            )


def find_unusable_gpu(_scope: Scope) -> Iterator[Finding]:
    """Yields a finding if this machine has a GPU that PyTorch cannot use."""
    if reason := unusable_gpu():
        problem = "PyTorch cannot use the GPU of this machine"
        yield Finding(reason, problem, "install a newer driver, or a PyTorch for this one")


def find_server_versions(scope: Scope) -> Iterator[Finding]:
    """Yields findings for servers of MLflow and Ray with another version than the installed client.

    Further findings are a Ray cluster that refuses the token, and a RAY_ADDRESS without a Ray cluster.
    """
    if scope.uri.startswith(("http://", "https://")):
        answer = get(f"{without_login(scope.uri)}/version", mlflow_login())
        version = answer.text.strip() if answer.status == 200 else ""
        yield from _compare_versions("MLflow", version, _installed_version("mlflow"), parts=2)
    host, port = ray_address()
    if host and "://" not in os.environ[RAY] and not connection_error(host, port):
        version, reason = ask_cluster(f"{host}:{port}")
        yield from _compare_versions("Ray", version, _installed_version("ray"), parts=3)
        if is_refused(reason):
            cure = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with it"
            yield Finding(os.environ[RAY], "the Ray cluster refuses the token", cure)
        elif not version:
            problem = "something answers there, but not as a Ray cluster does"
            yield Finding(os.environ[RAY], problem, f"correct {RAY}")


def _compare_versions(
    server: str, server_version: str, client_version: str | None, parts: int
) -> Iterator[Finding]:
    numbers = [(version or "").split(".")[:parts] for version in (server_version, client_version)]
    if server_version[:1].isdigit() and numbers[0] != numbers[1]:
        yield Finding(
            f"{server} server {server_version}",
            f"the client here is {client_version}",
            "use one version for server and client",
        )


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def find_stale_address(_scope: Scope) -> Iterator[Finding]:
    """Yields a finding if Ray's address file names a cluster that does not answer; programs would wait."""
    path = Path(default_folder(), "ray_current_cluster")
    reason = _stale_reason(path)
    if reason:
        yield Finding(str(path), reason, "removed", partial(_remove_stale, path))


def _stale_reason(path: Path) -> str:
    """Returns why the address file is stale; empty if it is not, or if it does not exist."""
    try:
        address = path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    host, port = host_and_port(address)
    if not host:
        return f"names no address: {address[:100]!r}"
    reason = connection_error(host, port)
    return f"names the Ray cluster {address}, which does not answer ({reason})" if reason else ""


def _remove_stale(path: Path) -> None:
    # Checked again, since a cluster may have been started meanwhile.
    if _stale_reason(path):
        path.unlink(missing_ok=True)
