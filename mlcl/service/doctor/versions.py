"""Checks the versions of packages and servers."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from mlcl.service.doctor.finding import Finding, Scope
from mlcl.service.doctor.services import mlflow_login, ray_address
from mlcl.tracking.network import connection_error, get
from mlcl.tracking.uri import without_login

PACKAGE = "mlcl"
RAY_SECONDS = 20.0
"""Seconds that a cluster may take to answer."""


def find_other_versions(_scope: Scope) -> Iterator[Finding]:
    """The Python and the installed packages with versions that this package does not allow."""
    python = metadata.metadata(PACKAGE)["Requires-Python"] or ""
    if platform.python_version() not in SpecifierSet(python, prereleases=True):
        yield Finding(f"Python {platform.python_version()}", f"{PACKAGE} needs {python}", "use such a Python")
    for line in metadata.requires(PACKAGE) or []:
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        found = _installed(needed.name)
        if found is None or not needed.specifier.contains(found, prereleases=True):
            what = f"{needed.name} {found or 'is not installed'}"
            wanted = f"{needed.name}{needed.specifier}"
            yield Finding(what, f"{PACKAGE} needs {wanted}", f"pip install '{wanted}'")


def find_server_versions(scope: Scope) -> Iterator[Finding]:
    """Servers with another version than the installed client."""
    if scope.uri.startswith(("http://", "https://")):
        answer = get(f"{without_login(scope.uri)}/version", mlflow_login())
        version = answer.text.strip() if answer.status == 200 else ""
        yield from _compare("MLflow", version, _installed("mlflow"), parts=2)
    host, port = ray_address()
    if host and not os.environ["RAY_ADDRESS"].startswith("ray://") and not connection_error(host, port):
        version = _ray_version(f"{host}:{port}")
        yield from _compare("Ray", version, _installed("ray"), parts=3)
        if not version:
            why = "something answers there, but not as a Ray cluster does"
            yield Finding(os.environ["RAY_ADDRESS"], why, "correct RAY_ADDRESS, or give Ray's token")


def _ray_version(address: str) -> str:
    """The version, read in a child process: Ray's client ends its process where it cannot connect."""
    command = [sys.executable, "-m", "mlcl.service.doctor.ray_version", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RAY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip()


def _compare(server: str, there: str, here: str | None, parts: int) -> Iterator[Finding]:
    """A finding where the first `parts` numbers of two versions differ."""
    numbers = [(version or "").split(".")[:parts] for version in (there, here)]
    if there[:1].isdigit() and numbers[0] != numbers[1]:
        yield Finding(
            f"{server} server {there}", f"the client here is {here}", "use one version for server and client"
        )


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
